"""Retrofitted state-space layers are run, trained and audited as the plain ones are."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

import memaudit
from memaudit.interfaces import DiagonalDecay, plain_name
from memaudit.numerics.linear import EXECUTIONS
from memaudit_ssm import LRU, S4, S4D, S5, Core, SsmAdapter
from memaudit_ssm.curse import BLOCKS
from memaudit_ssm.s4 import S4Recipe
from memaudit_ssm.subject import roles
from tests.module_laws import check_perturbable
from tests.plugins.ssm_models import mixer, opened

WIDTH = 3


class Doubled(nn.Module):
    """A parametrization under the names of a retrofit: stored = 2·raw, exactly."""

    form_name = "doubled (by=2)"

    def forward(self, raw: Tensor) -> Tensor:
        return 2.0 * raw

    def right_inverse(self, stored: Tensor) -> tuple[Tensor]:
        return (stored / 2.0,)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def curse(cell: str, activation: str) -> Core:
    layer = BLOCKS[cell](WIDTH, dt=0.3, activation=activation, generator=generator())
    with torch.no_grad():
        layer.W.weight.abs_().add_(0.1)  # away from the kink of relu
    return layer


def s4(**options: Any) -> Core:
    return S4(WIDTH, 4, generator=generator(), **options)


LAYERS: dict[str, Callable[[], Core]] = {
    "lru": lambda: LRU(WIDTH, 4, generator=generator()),
    "s4d": lambda: S4D(WIDTH, 4, generator=generator()),
    "s4d best": lambda: S4D(WIDTH, 4, parameterization="best", generator=generator()),
    "s4 relu": lambda: s4(recipe=S4Recipe(real_transform="relu")),
    "s4 low rank": lambda: s4(rank=1, bidirectional=True),
    "s5": lambda: S5(WIDTH, 4, generator=generator()),
    "s5 clipped": lambda: S5(WIDTH, 4, clip_eigs=True, bidirectional=True, generator=generator()),
    "rnn": lambda: curse("rnn", "linear"),
    "softplusrnn": lambda: curse("softplusrnn", "linear"),
    "diagonalrnn": lambda: curse("diagonalrnn", "tanh"),
    "residual lru": lambda: curse("lru", "tanh"),
}


def doubled(layer: nn.Module) -> str:
    """Put the weight that makes the modes behind the parametrization; its plain name."""
    (decay,) = SsmAdapter().stored_decays(layer)
    assert isinstance(decay, DiagonalDecay)
    parametrize.register_parametrization(decay.owner, decay.name, Doubled(), unsafe=True)
    (path,) = [path for path, part in layer.named_modules() if part is decay.owner]
    return f"{path}.{decay.name}".lstrip(".")


def raw_of(layer: nn.Module) -> Tensor:
    (raw,) = [w for name, w in layer.named_parameters() if name.endswith("original0")]
    return raw


def inputs() -> Tensor:
    return torch.randn(2, 24, WIDTH, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("name", LAYERS)
def test_an_audit_in_memory_keeps_answers_and_modes_and_tells_the_new_form(name: str) -> None:
    layer = LAYERS[name]()
    before = memaudit.load(deepcopy(layer))
    doubled(layer)
    after = memaudit.load(layer)
    assert torch.equal(after.respond(inputs()), before.respond(inputs()))
    (old,), (new,) = before.spectra(), after.spectra()
    assert np.array_equal(old.eigenvalues, new.eigenvalues)
    assert new.parameterization == Doubled.form_name != old.parameterization
    assert after.identity.description == before.identity.description


@pytest.mark.parametrize("name", LAYERS)
def test_a_copy_in_double_precision_keeps_raw_weights_and_complex_ones(name: str) -> None:
    layer = LAYERS[name]()
    doubled(layer)
    wide = memaudit.load(layer, dtype="float64")
    answer = wide.respond(inputs().double())
    assert answer.dtype == torch.float64
    torch.testing.assert_close(answer.float(), layer(inputs()).detach(), rtol=1e-4, atol=1e-5)
    (module,) = wide.live_modules().values()
    assert torch.equal(raw_of(module).to(raw_of(layer).dtype), raw_of(layer))
    assert raw_of(module).is_complex() == raw_of(layer).is_complex()


@pytest.mark.parametrize("name", LAYERS)
def test_roles_do_not_depend_on_the_form(name: str) -> None:
    layer = LAYERS[name]()
    before = roles(layer, {"layer": layer})
    doubled(layer)
    after = {plain_name(n): role for n, role in roles(layer, {"layer": layer}).items()}
    assert after == before


@pytest.mark.parametrize("name", LAYERS)
def test_retrofitted_layers_obey_the_laws_of_moved_weights(name: str) -> None:
    layer = LAYERS[name]()
    doubled(layer)
    check_perturbable(memaudit.load(layer, dtype="float64"))


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("execution", EXECUTIONS)
def test_gradients_reach_the_raw_weight_in_every_execution(name: str, execution: str) -> None:
    layer = LAYERS[name]()
    doubled(layer)
    layer.execution = execution
    layer(inputs()).square().sum().backward()
    found = raw_of(layer).grad
    assert found is not None
    assert bool(found.isfinite().all())
    assert bool((found != 0.0).any())


@pytest.mark.parametrize("name", ["s4d", "s4 relu", "s4 low rank"])
def test_a_moved_raw_weight_is_noticed(name: str) -> None:
    layer = LAYERS[name]()
    doubled(layer)
    with torch.no_grad():
        before = layer.modes().clone()
        raw_of(layer).add_(0.5)
        assert not torch.equal(layer.modes(), before)


def test_a_retrofitted_layer_is_still_told_by_its_law() -> None:
    layer = LAYERS["lru"]()
    doubled(layer)
    (decay,) = SsmAdapter().stored_decays(layer)
    assert isinstance(decay, DiagonalDecay)
    assert (decay.layer, decay.name, decay.law.name) == ("LRU", "nu_log", "exp")


def test_selective_scans_tell_the_new_form(tmp_path: Any) -> None:
    (part,) = opened(mixer(), tmp_path, dtype=torch.float64).parts().values()
    (old,) = part.spectra()
    network = part.live_modules()[""]
    parametrize.register_parametrization(network, "A_log", Doubled(), unsafe=True)
    (new,) = part.spectra()
    assert np.array_equal(old.eigenvalues, new.eigenvalues)
    assert (old.parameterization, new.parameterization) == ("exp", Doubled.form_name)
    check_perturbable(part)


@pytest.mark.parametrize("name", [n for n in LAYERS if n not in ("rnn", "softplusrnn")])
@pytest.mark.parametrize("move", [-1e3, 1e3])
def test_no_move_of_the_raw_weight_leaves_the_stable_set(name: str, move: float) -> None:
    layer = LAYERS[name]()
    memaudit.retrofit(layer, "softplus" if "s4d" not in name else "heavytail", radius=False)
    with torch.no_grad():
        raw_of(layer).add_(move)
        modes = layer.modes().abs()
    assert bool(modes.isfinite().all())
    assert float(modes.max()) <= 1.0
