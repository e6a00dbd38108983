"""State-space layers with their weights as an argument."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import memaudit
from memaudit.report import Identity
from memaudit_ssm import curse
from memaudit_ssm.core import Core, cast
from memaudit_ssm.lru import FORMS, LRU
from memaudit_ssm.s4 import S4, S4Recipe
from memaudit_ssm.s4d import REAL_PART, S4D, S4DBlock
from memaudit_ssm.s5 import S5
from memaudit_ssm.subject import LayerSubject
from tests.module_laws import check_perturbable
from tests.plugins.ssm_models import mixer, opened

FIXTURES = (
    *(f"curse_of_memory/{cell}" for cell in ("diagonalrnn", "lru", "rnn", "softplusrnn", "ssm")),
    "lru_jax/small",
    *(f"s4_v4_lightning/{kind}" for kind in ("nplr_omegaconf", "s4d_plain")),
    *(f"s4_v4_standalone/{kind}" for kind in ("diag", "diag_real", "dplr")),
    "s4d_standalone/small",
    "s5_pytorch/small",
    "stablessm/best",
)


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def subject_of(core: Core, dtype: torch.dtype = torch.float64) -> LayerSubject:
    cast(core, dtype)
    who = Identity("layer", "ssm", core.cell, 1, str(dtype), "cpu", description="a layer")
    return LayerSubject("layer", core, who, device=torch.device("cpu"), dtype=dtype)


def restored_dplr() -> S4:
    layer = S4(3, 8, rank=1, generator=seeded())
    layer.kernel.get_buffer("l_kernel").fill_(16)
    return layer


def gated_s4d() -> S4DBlock:
    layer = S4DBlock(2, 8)
    with torch.no_grad():
        for weight in layer.parameters():
            weight.uniform_(-0.5, 0.5, generator=seeded())
    return layer


CORES: dict[str, Callable[[], Core]] = {
    **{
        f"s4d {f}": lambda f=f: S4D(2, 12, parameterization=f, generator=seeded())
        for f in REAL_PART
    },
    "s4d of few states": lambda: S4D(2, 4, generator=seeded()),
    "s4d gated": gated_s4d,
    **{
        f"lru {form}": lambda form=form: LRU(3, 8, form=form, radii=(0.5, 0.9), generator=seeded())
        for form in FORMS
    },
    "lru wide": lambda: LRU(7, 8, radii=(0.5, 0.9), generator=seeded()),
    "s5": lambda: S5(3, 8, conj_sym=True, generator=seeded()),
    "s5 of two directions": lambda: S5(3, 8, bidirectional=True, generator=seeded()),
    "s4": lambda: S4(3, 12, generator=seeded()),
    "s4 bilinear": lambda: S4(3, 12, recipe=S4Recipe(disc="bilinear"), generator=seeded()),
    "s4 of two directions": lambda: S4(3, 12, bidirectional=True, generator=seeded()),
    "s4 of low rank": lambda: S4(3, 8, rank=1, generator=seeded()),
    "s4 with a readout to restore": restored_dplr,
    **{
        f"curse {cell} {act}": lambda kind=kind, act=act: kind(
            4, dt=0.1, activation=act, generator=seeded()
        )
        for cell, kind in curse.BLOCKS.items()
        for act in ("linear", "tanh")
    },
}


@pytest.mark.parametrize("name", CORES)
def test_every_layer_obeys_the_laws(name: str) -> None:
    check_perturbable(subject_of(CORES[name]()))


@pytest.mark.parametrize("name", ["s4d exp", "lru split", "s4 of low rank", "curse rnn tanh"])
def test_layers_obey_the_laws_in_single_precision(name: str) -> None:
    check_perturbable(subject_of(CORES[name](), torch.float32))


@pytest.mark.parametrize("name", CORES)
def test_copies_of_a_layer_run_in_one_batch(name: str) -> None:
    subject = subject_of(CORES[name]())
    model: Any = subject.perturbable()
    groups = {role.group for role in model.roles.values()}
    assert groups >= {"recurrent"}
    for group in groups:
        model = subject.perturbable()
        moved = {
            name: torch.stack([1.01 * weight, 0.99 * weight])
            for name, weight in model.weights.items()
            if model.roles[name].group == group
        }
        model.respond(torch.ones(1, 7, subject.core.width, dtype=torch.float64), moved)
        assert model.execution == "vmap"


def test_the_modes_follow_a_moved_weight_as_the_formula_says() -> None:
    layer = LRU(2, 3, radii=(0.5, 0.9), generator=seeded())
    model = subject_of(layer).perturbable()
    nu = model.weights["nu_log"]
    found = model.modes({"nu_log": torch.stack([nu, nu + 0.25])})["layer"]
    wanted = torch.exp(-torch.exp(torch.stack([nu, nu + 0.25])))
    torch.testing.assert_close(found.abs(), wanted, rtol=1e-14, atol=0)


def test_a_mode_moved_over_the_boundary_is_told() -> None:
    layer = S4D(1, 4, parameterization="direct", generator=seeded())
    model = subject_of(layer).perturbable()
    raw = model.weights["kernel.log_A_real"]
    rate, dt = float(raw[0, 0]), math.exp(float(model.weights["kernel.log_dt"][0]))
    moved = torch.stack([raw - rate - 1e-9, raw - rate + 1e-9])  # both rates are the same here
    inside, outside = model.modes({"kernel.log_A_real": moved})["layer"].abs()
    assert float(inside.max()) < 1.0 < float(outside.max())
    assert float(outside.max()) - 1.0 == pytest.approx(1e-9 * dt, rel=1e-4)


def test_eigenvalues_can_be_differentiated() -> None:
    model = subject_of(LRU(2, 3, radii=(0.5, 0.9), generator=seeded())).perturbable()
    nu = model.weights["nu_log"].expand(2, -1).clone().requires_grad_()
    size = model.modes({"nu_log": nu})["layer"].abs()
    (slope,) = torch.autograd.grad(size.sum(), nu)
    torch.testing.assert_close(slope, -nu.exp() * torch.exp(-nu.exp()), rtol=1e-12, atol=0)


def test_a_copy_that_grows_without_bound_does_not_spoil_the_others() -> None:
    layer = S4D(1, 12, parameterization="direct", generator=seeded())
    subject = subject_of(layer)
    model = subject.perturbable()
    raw = model.weights["kernel.log_A_real"]
    u = torch.ones(1, 200, 1, dtype=torch.float64)
    answers = model.respond(u, {"kernel.log_A_real": torch.stack([raw, raw + 1e4])})
    torch.testing.assert_close(answers[0], subject.respond(u), rtol=1e-12, atol=1e-12)
    assert not bool(answers[1].isfinite().all())


def test_a_readout_that_cannot_be_restored_is_not_finite_in_a_copy() -> None:
    subject = subject_of(restored_dplr())
    model = subject.perturbable()
    rate = model.weights["kernel.A_real"]
    moved = torch.stack([rate, torch.full_like(rate, torch.inf)])
    answers = model.respond(torch.ones(1, 9, 3, dtype=torch.float64), {"kernel.A_real": moved})
    assert bool(answers[0].isfinite().all())
    assert not bool(answers[1].isfinite().all())


def test_an_execution_that_was_asked_for_is_kept() -> None:
    layer = S4D(1, 12, generator=seeded())
    layer.execution = "stepping"
    subject = subject_of(layer)
    u = torch.ones(1, 30, 1, dtype=torch.float64)
    model = subject.perturbable()
    raw = model.weights["D"]
    answers = model.respond(u, {"D": torch.stack([raw, raw])})
    assert torch.equal(answers[0], subject.respond(u))
    assert layer.execution == "stepping"
    assert layer.checked


def test_selective_scans_obey_the_laws(tmp_path: Path) -> None:
    (part,) = opened(mixer(), tmp_path, dtype=torch.float64).parts().values()
    check_perturbable(part)


@pytest.mark.shared
@pytest.mark.parametrize("name", FIXTURES)
def test_every_fixture_obeys_the_laws(shared: Path, name: str) -> None:
    subject = memaudit.load(shared / "fixtures" / name, dtype="float64")
    for part in (subject.parts() or {"": subject}).values():
        check_perturbable(part)
