"""The weights that make the modes of state-space layers, and the laws by which they do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.utils import parametrize

import memaudit
from memaudit.interfaces import DiagonalDecay, NoDecay, StoredDecay
from memaudit.testing import check_reparam
from memaudit_ssm import LRU, S4, S4D, S5, SsmAdapter
from memaudit_ssm.curse import EulerRelu, Kept
from memaudit_ssm.s4 import POSITIVE, S4_LAWS, SIGNED, TIED, S4Kernel, S4Recipe, S4Sizes, Sigmoid
from memaudit_ssm.s4d import REAL_PART, STABLE_LAWS, HeldBest
from tests.plugins.recorded_answers import recorded_modes
from tests.plugins.s4_models import both_of, one_step, pairs
from tests.plugins.ssm_models import mixer, opened, picture_scan

LAWS = (*S4_LAWS.values(), *STABLE_LAWS.values(), Kept(), EulerRelu(dt=0.3))
DIAGONAL = (
    "s4d_standalone/small",
    "s4d_standalone/pooled",
    "s4_v4_standalone/diag",
    "s4_v4_standalone/diag_real",
    "s4_v4_lightning/s4d_plain",
    *(f"stablessm/{name}" for name in REAL_PART),
)
LOW_RANK = ("s4_v4_standalone/dplr", "s4_v4_lightning/nplr_omegaconf")


def told(module: nn.Module) -> list[StoredDecay]:
    return list(SsmAdapter().stored_decays(module))


def diagonals(module: nn.Module) -> Iterator[tuple[DiagonalDecay, Tensor]]:
    """The decays of a module, each with the numbers of its law in float64."""
    for decay in told(module):
        assert isinstance(decay, DiagonalDecay)
        stored = getattr(decay.owner, decay.name).detach()
        numbers = {"all": stored, "real": stored.real, "pairs": stored[..., 0]}[decay.part]
        yield decay, decay.law.forward(numbers.double())


def steps_of(kernel: Any) -> Tensor:
    """The step sizes of a kernel, by the transform of its recipe if it has one."""
    if isinstance(kernel, S4Kernel):
        raw = kernel.inv_dt.sinh() if kernel.recipe.dt_fast else kernel.inv_dt
        return POSITIVE[kernel.recipe.dt_transform](raw)
    return kernel.log_dt.exp().unsqueeze(-1)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: f"{type(law).__name__}")
def test_every_law_is_a_reparameterization(law: Any) -> None:
    check_reparam(law)


@pytest.mark.parametrize("name", POSITIVE)
def test_the_laws_of_s4_are_its_transforms(name: str) -> None:
    w = torch.linspace(-3.0, 3.0, 61, dtype=torch.float64)
    assert torch.equal(S4_LAWS[name].forward(w), -POSITIVE[name](w)) or name == "softplus"
    torch.testing.assert_close(S4_LAWS[name].forward(w), -POSITIVE[name](w))


@pytest.mark.parametrize("name", REAL_PART)
def test_the_laws_of_stable_ssm_are_its_real_parts(name: str) -> None:
    w = torch.linspace(-3.0, 3.0, 61, dtype=torch.float64)
    torch.testing.assert_close(STABLE_LAWS[name].forward(w), REAL_PART[name](w))


@pytest.mark.parametrize("law", [Sigmoid(), HeldBest(b=0.1), Kept()])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_end_of_a_bounded_law_has_a_finite_gradient_and_nothing_lies_beyond(
    law: Any, dtype: torch.dtype
) -> None:
    ends = {"sigmoid": (-1.0, -1.5), "best": (-10.0, -11.0), "exp": (0.0, -0.1)}[law.name]
    lam = torch.tensor(ends, dtype=dtype, requires_grad=True)
    w = law.inverse(lam)
    w[0].backward()
    assert w.isfinite().tolist() == [True, False]
    assert lam.grad is not None
    assert bool(lam.grad.isfinite().all())


@pytest.mark.shared
@pytest.mark.parametrize("name", DIAGONAL)
def test_rates_are_those_behind_the_recorded_eigenvalues(shared: Path, name: str) -> None:
    folder = shared / "fixtures" / name
    recorded = recorded_modes(load_file(folder / "io.safetensors"))
    subject = memaudit.load(folder)
    (module,) = subject.live_modules().values()
    found = list(diagonals(module))
    assert len(found) == len(subject.spectra())
    assert all(decay.owner in module.get_submodule(decay.layer).modules() for decay, _ in found)
    for (decay, lam), modes in zip(found, recorded, strict=True):
        owner: Any = decay.owner
        dt = steps_of(owner)
        if getattr(owner, "disc", "zoh") == "bilinear":
            rates = 2.0 / dt * ((modes - 1.0) / (modes + 1.0)).real
        else:
            rates = modes.abs().log() / dt
        torch.testing.assert_close(lam.expand_as(rates), rates, rtol=1e-7, atol=1e-9)


@pytest.mark.shared
@pytest.mark.parametrize("name", LOW_RANK)
def test_low_ranks_have_the_recorded_eigenvalues_around_their_diagonal(
    shared: Path, name: str
) -> None:
    folder = shared / "fixtures" / name
    recorded = recorded_modes(load_file(folder / "io.safetensors"))
    (module,) = memaudit.load(folder).live_modules().values()
    for (decay, lam), modes in zip(diagonals(module), recorded, strict=True):
        owner: Any = decay.owner
        assert decay.note == TIED
        rates = both_of((lam - 1j * owner.A_imag).numpy())[0]
        left = both_of(pairs(owner.P))[:, 0]
        dt = steps_of(owner).numpy()[0]
        step = one_step(rates, left, left.conj(), rates, dt, "bilinear")[0]
        found = torch.linalg.eigvals(torch.from_numpy(step)).abs().sort().values
        torch.testing.assert_close(found, modes[0].abs().sort().values, rtol=0, atol=1e-9)


@pytest.mark.shared
@pytest.mark.parametrize(("name", "part"), [("lru_jax/small", "all"), ("s5_pytorch/small", "real")])
def test_rates_of_one_state_are_those_behind_the_recorded_eigenvalues(
    shared: Path, name: str, part: str
) -> None:
    folder = shared / "fixtures" / name
    recorded = recorded_modes(load_file(folder / "io.safetensors"))
    (module,) = memaudit.load(folder).live_modules().values()
    for (decay, lam), modes in zip(diagonals(module), recorded, strict=True):
        dt = decay.owner.log_step.exp() if part == "real" else 1.0  # type: ignore[operator]
        assert decay.part == part
        torch.testing.assert_close(torch.exp(dt * lam), modes.abs(), rtol=0, atol=1e-9)


@pytest.mark.shared
@pytest.mark.parametrize("cell", ["rnn", "softplusrnn", "diagonalrnn", "lru", "ssm"])
def test_curse_of_memory_has_the_recorded_eigenvalues(shared: Path, cell: str) -> None:
    folder = shared / "fixtures" / "curse_of_memory" / cell
    recorded = load_file(folder / "io.safetensors")["eigs_real"].flatten()
    subject = memaudit.load(folder)
    ((decay, lam),) = diagonals(subject.live_modules()[""])
    net: Any = subject.live_modules()[""].get_submodule("net")
    assert (decay.layer, decay.cell, decay.owner) == ("net", cell, net.W)
    if cell == "diagonalrnn":
        found = lam
    elif cell == "lru":
        found = 1.0 - net.dt * (1.0 - lam)
    else:
        assert "overshoot" in decay.note
        basis = net.P.weight
        found = 1.0 + net.dt * torch.linalg.eigvalsh(basis.mT @ torch.diag(lam) @ basis)
    torch.testing.assert_close(found.sort().values, recorded.sort().values, rtol=0, atol=1e-9)


def test_layers_inside_other_modules_are_found_once_by_their_paths() -> None:
    layer = LRU(3, 4, generator=generator())
    outer = nn.ModuleDict({"a": nn.Sequential(nn.Linear(2, 3), layer), "b": S4D(3, 4).half()})
    outer["tied"] = layer
    assert [(d.layer, d.cell) for d in told(outer)] == [("a.1", "lru"), ("b", "s4d")]
    assert [d.layer for d in told(layer)] == ["LRU"]


def test_of_other_modules_nothing_is_told() -> None:
    assert told(nn.TransformerEncoderLayer(4, 1, 8, batch_first=True)) == []
    assert told(nn.LSTM(3, 4)) == []


def test_clipped_rates_and_signed_steps_are_told() -> None:
    (clipped,) = told(S5(3, 4, clip_eigs=True, generator=generator()))
    assert isinstance(clipped, DiagonalDecay)
    assert (clipped.law.name, clipped.part) == ("clip", "real")
    (signed,) = told(S4(3, 4, recipe=S4Recipe(dt_transform="none")))
    assert isinstance(signed, DiagonalDecay)
    assert signed.note == SIGNED


def test_a_weight_that_something_else_computes_is_refused() -> None:
    layer = LRU(3, 4, generator=generator())
    parametrize.register_parametrization(layer, "nu_log", nn.Softplus(), unsafe=True)
    (refused,) = told(layer)
    assert isinstance(refused, NoDecay)
    assert "nu_log is computed" in refused.reason


def test_hosts_tell_their_scans_and_layers(tmp_path: Path) -> None:
    host = opened({**mixer("a."), **mixer("b.", seed=5)}, tmp_path)
    for name, module in host.live_modules().items():
        assert host.parts()[name].live_modules() == {"": module}
        ((decay, lam),) = diagonals(module)
        assert (decay.name, decay.cell, decay.law.name) == ("A_log", "mamba1", "exp")
        assert torch.equal(lam, module.rates())  # type: ignore[operator]
    assert list(host.live_modules()) == ["a", "b"]


def test_directions_that_no_other_zoo_knows_are_told_and_others_are_not() -> None:
    names = {**mixer(), **mixer(way="b")}
    assert [d.name for d in told(module_of(names)) if isinstance(d, DiagonalDecay)] == ["A_b_log"]
    assert [d.name for d, _ in diagonals(module_of(picture_scan()))] == ["A_logs"]
    assert told(module_of(mixer())) == []


def test_a_kernel_of_version_four_alone_is_told_by_its_own_transform() -> None:
    kernel = S4Kernel(S4Sizes(3, 2, rank=1), S4Recipe(real_transform="sigmoid"))
    (decay,) = told(nn.Sequential(kernel))
    assert isinstance(decay, DiagonalDecay)
    assert (decay.layer, decay.name, decay.law.name) == ("0", "A_real", "sigmoid")
    assert decay.note == TIED


def module_of(state: dict[str, Tensor]) -> nn.Module:
    """A module that holds these tensors under these names, and does nothing."""
    whole = nn.Module()
    for name, tensor in state.items():
        path, _, leaf = name.rpartition(".")
        if path and path not in whole._modules:
            whole.add_module(path, nn.Module())
        whole.get_submodule(path).register_parameter(leaf, nn.Parameter(tensor))
    return whole
