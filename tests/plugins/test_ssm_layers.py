"""State-space layers with moved weights, the weights that make their modes, and retrofits."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

import memaudit
from memaudit.interfaces import DiagonalDecay, NoDecay, StoredDecay, plain_name
from memaudit.testing import check_reparam
from memaudit_ssm import LRU, S4, S4D, S5, Core, SsmAdapter, curse
from memaudit_ssm.curse import EulerRelu, StableExponential
from memaudit_ssm.s4 import (
    POSITIVE,
    S4_LAWS,
    SIGNED,
    TIED,
    UNTIED,
    S4Kernel,
    S4Recipe,
    S4Sizes,
    Sigmoid,
)
from memaudit_ssm.s4d import REAL_PART, STABLE_LAWS, HeldBest, S4DBlock
from memaudit_ssm.subject import roles
from tests.module_laws import check_perturbable
from tests.plugins.ssm_models import mixer, opened, picture_scan

WIDTH = 3


def seeded(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=seeded(seed))


def restored() -> S4:
    """A layer whose readout belongs to a kernel of some length."""
    layer = S4(WIDTH, 8, rank=1, generator=seeded())
    layer.kernel.get_buffer("l_kernel").fill_(16)
    return layer


def gated() -> S4DBlock:
    layer = S4DBlock(WIDTH, 8)
    with torch.no_grad():
        for weight in layer.parameters():
            weight.uniform_(-0.5, 0.5, generator=seeded())
    return layer


def residual(cell: str, activation: str) -> Core:
    layer = curse.BLOCKS[cell](WIDTH, dt=0.3, activation=activation, generator=seeded())
    with torch.no_grad():
        layer.W.weight.abs_().add_(0.1)  # away from the kink of relu
    return layer


LAYERS: dict[str, Callable[[], Core]] = {
    "lru": lambda: LRU(WIDTH, 8, radii=(0.5, 0.9), generator=seeded()),
    "lru pairs": lambda: LRU(WIDTH, 4, form="pairs", radii=(0.5, 0.9), generator=seeded()),
    "lru complex": lambda: LRU(7, 4, form="complex", radii=(0.5, 0.9), generator=seeded()),
    "s4d": lambda: S4D(WIDTH, 4, generator=seeded()),
    "s4d best": lambda: S4D(WIDTH, 12, parameterization="best", generator=seeded()),
    "s4d direct": lambda: S4D(WIDTH, 12, parameterization="direct", generator=seeded()),
    "s4d gated": gated,
    "s4 relu": lambda: S4(
        WIDTH, 12, recipe=S4Recipe(real_transform="relu", disc="bilinear"), generator=seeded()
    ),
    "s4 low rank": lambda: S4(WIDTH, 4, rank=1, bidirectional=True, generator=seeded()),
    "s4 restored": restored,
    "s5": lambda: S5(WIDTH, 8, conj_sym=True, generator=seeded()),
    "s5 clipped": lambda: S5(WIDTH, 4, clip_eigs=True, bidirectional=True, generator=seeded()),
    **{
        f"curse {cell}": lambda cell=cell, act=act: residual(cell, act)
        for cell, act in [
            ("rnn", "linear"),
            ("softplusrnn", "tanh"),
            ("diagonalrnn", "tanh"),
            ("lru", "tanh"),
            ("ssm", "linear"),
        ]
    },
}


def inputs(layer: Core, dtype: torch.dtype = torch.float32) -> Tensor:
    return draw(2, 24, layer.width, seed=5).to(dtype)


def told(module: nn.Module) -> list[StoredDecay]:
    return list(SsmAdapter().stored_decays(module))


def one_told(module: nn.Module) -> StoredDecay | None:
    found = told(module)
    assert len(found) <= 1
    return found[0] if found else None


# -- Moved weights.


@pytest.mark.parametrize("name", LAYERS)
def test_moved_weights_obey_the_laws_in_one_batch(name: str) -> None:
    subject = memaudit.load(LAYERS[name](), dtype="float64")
    check_perturbable(subject)
    model: Any = subject.perturbable()
    assert "recurrent" in {role.group for role in model.roles.values()}
    moved = {n: torch.stack([1.01 * w, 0.99 * w]) for n, w in model.weights.items()}
    model.respond(torch.ones(1, 7, subject.input_size or 0, dtype=torch.float64), moved)
    assert model.execution == "vmap"


@pytest.mark.parametrize("name", ["s4d", "lru", "s4 low rank", "curse softplusrnn"])
def test_moved_weights_obey_the_laws_in_single_precision(name: str) -> None:
    check_perturbable(memaudit.load(LAYERS[name](), dtype="float32"))


def test_the_modes_follow_a_moved_weight_as_the_formula_says() -> None:
    model: Any = memaudit.load(LAYERS["lru"](), dtype="float64").perturbable()
    nu = torch.stack([model.weights["nu_log"], model.weights["nu_log"] + 0.25]).requires_grad_()
    (modes,) = model.modes({"nu_log": nu}).values()
    torch.testing.assert_close(modes.abs(), torch.exp(-torch.exp(nu)), rtol=1e-14, atol=0)
    (slope,) = torch.autograd.grad(modes.abs().sum(), nu)
    torch.testing.assert_close(slope, -nu.exp() * torch.exp(-nu.exp()), rtol=1e-12, atol=0)


def test_a_mode_moved_over_the_boundary_is_reported_and_does_not_spoil_the_other_copies() -> None:
    layer = S4D(1, 12, parameterization="direct", generator=seeded())
    subject = memaudit.load(layer, dtype="float64")
    model: Any = subject.perturbable()
    raw, dt = model.weights["kernel.log_A_real"], math.exp(model.weights["kernel.log_dt"][0])
    moved = torch.stack([raw - raw[0, 0] - 1e-9, raw - raw[0, 0] + 1e-9])  # all rates are the same
    (modes,) = model.modes({"kernel.log_A_real": moved}).values()
    inside, outside = modes.abs().amax(dim=1)
    assert float(inside) < 1.0 < float(outside)
    assert float(outside) - 1.0 == pytest.approx(1e-9 * dt, rel=1e-4)
    u = torch.ones(1, 200, 1, dtype=torch.float64)
    answers = model.respond(u, {"kernel.log_A_real": torch.stack([raw, raw + 1e4])})
    torch.testing.assert_close(answers[0], subject.respond(u), rtol=1e-12, atol=1e-12)
    assert not bool(answers[1].isfinite().all())


def test_a_readout_that_cannot_be_restored_is_not_finite_in_a_copy() -> None:
    model: Any = memaudit.load(restored(), dtype="float64").perturbable()
    rate = model.weights["kernel.A_real"]
    moved = torch.stack([rate, torch.full_like(rate, torch.inf)])
    answers = model.respond(torch.ones(1, 9, 3, dtype=torch.float64), {"kernel.A_real": moved})
    assert bool(answers[0].isfinite().all())
    assert not bool(answers[1].isfinite().all())


def test_an_execution_that_was_asked_for_is_kept() -> None:
    layer = S4D(1, 12, generator=seeded())
    layer.execution = "stepping"
    subject = memaudit.load(layer)
    model: Any = subject.perturbable()
    raw = model.weights["D"]
    u = torch.ones(1, 30, 1)
    assert torch.equal(model.respond(u, {"D": torch.stack([raw, raw])})[0], subject.respond(u))
    assert layer.execution == "stepping"


def test_a_stable_layer_next_to_the_boundary_is_stable_in_any_precision() -> None:
    layer = LRU(2, 3, generator=seeded())
    with torch.no_grad():
        layer.nu_log.fill_(-20.0)
    for dtype in ("float32", "float64"):
        (found,) = memaudit.load(layer, dtype=dtype).spectra()
        assert found.time_scale == pytest.approx(math.exp(20.0), rel=1e-4)
        assert found.margin == pytest.approx(math.exp(-20.0), rel=1e-4)


# -- The laws by which stored weights make the modes.


LAWS = (*S4_LAWS.values(), *STABLE_LAWS.values(), StableExponential(), EulerRelu(dt=0.3))


@pytest.mark.parametrize("law", LAWS, ids=lambda law: type(law).__name__)
def test_every_law_is_a_reparameterization(law: Any) -> None:
    check_reparam(law)


def test_the_laws_are_the_transforms_of_the_published_code() -> None:
    w = torch.linspace(-3.0, 3.0, 61, dtype=torch.float64)
    for name, transform in POSITIVE.items():
        torch.testing.assert_close(S4_LAWS[name].forward(w), -transform(w))
    for name, transform in REAL_PART.items():
        torch.testing.assert_close(STABLE_LAWS[name].forward(w), transform(w))


@pytest.mark.parametrize("law", [Sigmoid(), HeldBest(b=0.1), StableExponential()])
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


def test_layers_inside_other_modules_are_found_once_by_their_paths() -> None:
    layer = LRU(3, 4, generator=seeded())
    outer = nn.ModuleDict({"a": nn.Sequential(nn.Linear(2, 3), layer), "b": S4D(3, 4).half()})
    outer["tied"] = layer
    assert [(d.layer, d.cell) for d in told(outer)] == [("a.1", "lru"), ("b", "s4d")]
    assert [d.layer for d in told(layer)] == ["LRU"]
    assert told(nn.TransformerEncoderLayer(4, 1, 8, batch_first=True)) == []
    assert told(nn.LSTM(3, 4)) == []


def test_clipped_rates_signed_steps_and_lone_kernels_are_noted() -> None:
    clipped = one_told(S5(3, 4, clip_eigs=True, generator=seeded()))
    assert isinstance(clipped, DiagonalDecay)
    assert (clipped.law.name, clipped.part) == ("clip", "real")
    signed = one_told(S4(3, 4, recipe=S4Recipe(dt_transform="none")))
    assert isinstance(signed, DiagonalDecay)
    assert signed.note == SIGNED
    kernel = S4Kernel(S4Sizes(3, 2, rank=1), S4Recipe(real_transform="sigmoid"))
    alone = one_told(nn.Sequential(kernel))
    assert isinstance(alone, DiagonalDecay)
    assert (alone.layer, alone.name, alone.law.name) == ("0", "A_real", "sigmoid")
    assert alone.note == TIED


def test_hosts_list_their_scans(tmp_path: Path) -> None:
    host = opened({**mixer("a."), **mixer("b.", seed=5)}, tmp_path)
    assert list(host.live_modules()) == ["a", "b"]
    for name, module in host.live_modules().items():
        assert host.parts()[name].live_modules() == {"": module}
        decay = one_told(module)
        assert isinstance(decay, DiagonalDecay)
        assert (decay.name, decay.cell, decay.law.name) == ("A_log", "mamba1", "exp")
        stored = getattr(decay.owner, decay.name).detach().double()
        assert torch.equal(decay.law.forward(stored), module.rates())  # type: ignore[operator]


# -- Layers of published code in memory, by names and shapes.


def holding(tensors: dict[str, Tensor], **attributes: Any) -> nn.Module:
    """A module with these parameters, under their paths, and attributes, that does nothing."""
    whole = nn.Module()
    for name, tensor in tensors.items():
        path, _, leaf = name.rpartition(".")
        if path and path not in whole._modules:
            whole.add_module(path, nn.Module())
        whole.get_submodule(path).register_parameter(leaf, nn.Parameter(tensor))
    for name, value in attributes.items():
        setattr(whole, name, value)
    return whole


class Kernel(nn.Module):
    """The convolution kernel of S4D with any function behind log_A_real."""

    def __init__(self, real: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.real = real
        self.C = nn.Parameter(draw(3, 2, 2))
        self.log_dt = nn.Parameter(draw(3, seed=1) - 5.0)
        self.log_A_real = nn.Parameter(0.3 * draw(3, 2, seed=2) - 0.7)
        self.A_imag = nn.Parameter(draw(3, 2, seed=3).abs())

    def forward(self, length: int) -> Tensor:
        rates = self.real(self.log_A_real) + 1j * self.A_imag
        dt = self.log_dt.exp().unsqueeze(-1)
        readout = torch.view_as_complex(self.C) * (torch.exp(rates * dt) - 1.0) / rates
        steps = (rates * dt).unsqueeze(-1) * torch.arange(length)
        return 2.0 * torch.einsum("hn,hnl->hl", readout, steps.exp()).real


@pytest.mark.parametrize("name", REAL_PART)
def test_the_form_behind_log_a_real_is_known_by_the_kernel(name: str) -> None:
    decay = one_told(Kernel(REAL_PART[name]))
    assert isinstance(decay, DiagonalDecay)
    assert (decay.name, decay.law) == ("log_A_real", STABLE_LAWS[name])


def test_an_unknown_form_or_the_names_alone_are_refused() -> None:
    unknown = one_told(Kernel(lambda w: -w.square()))
    assert isinstance(unknown, NoDecay)
    assert "log_A_real" in unknown.reason
    names_alone = holding(dict(Kernel(torch.neg).named_parameters()))
    assert isinstance(one_told(names_alone), NoDecay)
    never_trained = holding({name: draw(4) for name in ("theta_log", "gamma_log")})
    never_trained.register_buffer("nu_log", draw(4))
    buffer = one_told(never_trained)
    assert isinstance(buffer, NoDecay)
    assert "buffer" in buffer.reason
    layer = LRU(3, 4, generator=seeded())
    parametrize.register_parametrization(layer, "nu_log", nn.Softplus(), unsafe=True)
    computed = one_told(layer)
    assert isinstance(computed, NoDecay)
    assert "nu_log is computed" in computed.reason


def test_the_names_of_lru_and_s5_are_enough() -> None:
    names = ("nu_log", "theta_log", "gamma_log")
    decay = one_told(holding({name: draw(4) for name in names}))
    assert isinstance(decay, DiagonalDecay)
    assert (decay.cell, decay.name, decay.law.name) == ("lru", "nu_log", "exp")
    assert one_told(holding({name: draw(4) for name in names[:2]})) is None
    rates = torch.complex(-draw(4).abs(), draw(4))
    decay = one_told(holding({"Lambda": rates, "log_step": draw(4)}))
    assert isinstance(decay, DiagonalDecay)
    assert (decay.cell, decay.part, decay.law.name) == ("s5", "real", "direct")
    assert one_told(holding({"Lambda": rates.real, "log_step": draw(4)})) is None
    liquid = holding({"Lambda": rates, "log_step": draw(4)}, liquid=True)
    assert isinstance(one_told(liquid), NoDecay)


@pytest.mark.parametrize(
    ("shift", "stated", "law"),
    [(-1.0, None, "direct"), (0.0, None, None), (0.0, False, "direct"), (0.0, True, "clip")],
)
def test_rates_that_may_be_clipped_are_given_only_where_that_makes_no_difference(
    shift: float, stated: bool | None, law: str | None
) -> None:
    tensors = {"Lambda_re": shift - draw(4).abs(), "Lambda_im": draw(4), "log_step": draw(4, 1)}
    tensors["Lambda_re"][0] = shift
    decay = one_told(holding(tensors, **({} if stated is None else {"clip_eigs": stated})))
    found = decay.law.name if isinstance(decay, DiagonalDecay) else None
    assert isinstance(decay, DiagonalDecay | NoDecay)
    assert found == law


def s4(**others: Tensor) -> dict[str, Tensor]:
    return {"C": draw(1, 3, 2, 2), "B": draw(1, 3, 2, 2), **others}


@pytest.mark.parametrize("name", S4_LAWS)
def test_version_four_is_recognised_by_the_transform_that_it_keeps(name: str) -> None:
    tensors = s4(inv_dt=draw(3, 1), A_real=draw(3, 2), A_imag=draw(3, 2))
    decay = one_told(holding(tensors, real_transform=name, dt_transform="none"))
    assert isinstance(decay, DiagonalDecay)
    assert (decay.law, decay.note) == (S4_LAWS[name], SIGNED)
    refused = one_told(holding(tensors))
    assert isinstance(refused, NoDecay)
    assert "real_transform" in refused.reason


@pytest.mark.parametrize(
    ("raw", "further", "part", "law", "note"),
    [
        ("log_A_real", ("A_imag",), "all", "exp", ""),
        ("inv_A_real", ("A_imag",), "all", "softplus", ""),
        ("log_w_real", ("w_imag", "P"), "all", "exp", TIED),
        ("inv_w_real", ("w_imag", "P"), "all", "softplus", TIED),
        ("w", ("P",), "pairs", "direct", TIED),
        ("w", ("P", "Q"), "pairs", "direct", UNTIED),
        ("w", (), "pairs", "direct", UNTIED),
    ],
)
def test_older_versions_are_recognised_by_their_names(
    raw: str, further: tuple[str, ...], part: str, law: str, note: str
) -> None:
    extra = {name: draw(3, 2) for name in further}
    tensors = s4(log_dt=draw(3), **{raw: draw(3, 2)}, **extra)
    decay = one_told(holding(tensors, real_type="softplus"))
    assert isinstance(decay, DiagonalDecay)
    assert (decay.name, decay.part, decay.law.name, decay.note) == (raw, part, law, note)


def test_relu_got_its_floor_with_the_diagonal_form() -> None:
    rate = torch.tensor([-1.0, 0.5], dtype=torch.float64)
    wide = s4(log_dt=draw(3), inv_w_real=draw(3, 2), w_imag=draw(3, 2), P=draw(1, 3, 2, 2))
    flat = s4(log_dt=draw(3), inv_A_real=draw(3, 2), A_imag=draw(3, 2))
    found = [one_told(holding(tensors, real_type="relu")) for tensors in (wide, flat)]
    floors = [d.law.forward(rate)[0] for d in found if isinstance(d, DiagonalDecay)]
    assert [float(floor) for floor in floors] == [0.0, -1e-4]


def test_directions_that_no_other_zoo_knows_are_noted_and_others_are_not() -> None:
    both = one_told(holding({**mixer(), **mixer(way="b")}))
    assert isinstance(both, DiagonalDecay)
    assert both.name == "A_b_log"
    assert [d.name for d in told(holding(picture_scan())) if isinstance(d, DiagonalDecay)] == [
        "A_logs"
    ]
    assert told(holding(mixer())) == []


# -- Retrofitted layers.


class Doubled(nn.Module):
    """A parametrization under the names of a retrofit: stored = 2·raw, exactly."""

    form_name = "doubled (by=2)"

    def forward(self, raw: Tensor) -> Tensor:
        return 2.0 * raw

    def right_inverse(self, stored: Tensor) -> tuple[Tensor]:
        return (stored / 2.0,)


def doubled(layer: nn.Module) -> nn.Module:
    """The layer with the weight that makes its modes behind the parametrization."""
    decay = one_told(layer)
    assert isinstance(decay, DiagonalDecay)
    parametrize.register_parametrization(decay.owner, decay.name, Doubled(), unsafe=True)
    return layer


def raw_of(layer: nn.Module) -> Tensor:
    (raw,) = [w for name, w in layer.named_parameters() if name.endswith("original0")]
    return raw


@pytest.mark.parametrize("name", LAYERS)
def test_a_retrofitted_layer_keeps_answers_modes_and_roles_and_names_its_form(name: str) -> None:
    plain = LAYERS[name]()
    layer = doubled(deepcopy(plain))
    before, after = memaudit.load(plain), memaudit.load(layer)
    u = inputs(plain)
    assert torch.equal(after.respond(u), before.respond(u))
    (old,), (new,) = before.spectra(), after.spectra()
    assert np.array_equal(old.eigenvalues, new.eigenvalues)
    assert new.parameterization == Doubled.form_name != old.parameterization
    assert after.identity.description == before.identity.description
    moved = {plain_name(n): role for n, role in roles(layer, {"layer": layer}).items()}
    assert moved == roles(plain, {"layer": plain})
    wide = memaudit.load(layer, dtype="float64")
    check_perturbable(wide)
    answer = wide.respond(u.double())
    torch.testing.assert_close(answer.float(), layer(u).detach(), rtol=1e-4, atol=1e-5)
    (module,) = wide.live_modules().values()
    assert torch.equal(raw_of(module).to(raw_of(layer).dtype), raw_of(layer))
    with torch.no_grad():
        raw_of(layer).add_(0.5)
    assert not np.array_equal(memaudit.load(layer).spectra()[0].eigenvalues, new.eigenvalues)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("execution", ["convolution", "stepping"])
def test_gradients_reach_the_raw_weight(name: str, execution: str) -> None:
    layer = doubled(LAYERS[name]())
    layer.execution = execution
    layer(inputs(layer)).square().sum().backward()
    found = raw_of(layer).grad
    assert found is not None
    assert bool(found.isfinite().all())
    assert bool((found != 0.0).any())


def test_selective_scans_name_the_new_form(tmp_path: Path) -> None:
    (part,) = opened(mixer(), tmp_path, dtype=torch.float64).parts().values()
    check_perturbable(part)
    (old,) = part.spectra()
    network = part.live_modules()[""]
    parametrize.register_parametrization(network, "A_log", Doubled(), unsafe=True)
    (new,) = part.spectra()
    assert np.array_equal(old.eigenvalues, new.eigenvalues)
    assert (old.parameterization, new.parameterization) == ("exp", Doubled.form_name)
    check_perturbable(part)


#: P of these is no orthogonal matrix, so that a stable diagonal makes no stable step.
UNBOUNDED = ("curse rnn", "curse softplusrnn", "curse ssm")


@pytest.mark.parametrize("name", [n for n in LAYERS if n not in UNBOUNDED])
@pytest.mark.parametrize("move", [-1e3, 1e3])
def test_no_move_of_the_raw_weight_leaves_the_stable_set(name: str, move: float) -> None:
    layer = LAYERS[name]()
    memaudit.retrofit(layer, "softplus" if "s4d" not in name else "heavytail", radius=False)
    with torch.no_grad():
        raw_of(layer).add_(move)
        modes = layer.modes().abs()
    assert bool(modes.isfinite().all())
    assert float(modes.max()) <= 1.0
