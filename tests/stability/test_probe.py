"""E(beta) and the stability radius against closed forms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import memaudit
from memaudit.errors import ArgumentError
from memaudit.report import Report
from memaudit.stability import radius as dense
from memaudit.stability.probe import Stability

DOUBLE = torch.float64


class Modes(nn.Module):
    """y = sum of c_i h_i, h_i' = f(w_i) h_i + u: a diagonal system under any parameterization."""

    memaudit_roles: ClassVar[dict[str, str]] = {"w": "recurrent", "c": "readout"}

    def __init__(self, w: Tensor, f: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.w, self.c = nn.Parameter(w), nn.Parameter(torch.linspace(0.5, 1.0, len(w)).to(w))
        self.f = f

    def modes(self) -> Tensor:
        return self.f(self.w)

    def forward(self, u: Tensor) -> Tensor:
        state, answers = torch.zeros_like(u[:, 0]), []
        for now in u.unbind(1):
            state = self.f(self.w) * state + now
            answers.append((state * self.c).sum(-1, keepdim=True))
        return torch.stack(answers, 1)


class Matrix(nn.Module):
    """h' = W h + u, read out by a sum."""

    memaudit_roles: ClassVar[dict[str, str]] = {"W": "recurrent"}

    def __init__(self, W: Tensor) -> None:  # noqa: N803
        super().__init__()
        self.W = nn.Parameter(W)

    def modes(self) -> Tensor:
        return torch.linalg.eigvals(self.W)

    def forward(self, u: Tensor) -> Tensor:
        state, answers = torch.zeros_like(u[:, 0]).expand(-1, len(self.W)), []
        for now in u.unbind(1):
            state = state @ self.W.mT + now
            answers.append(state.sum(-1, keepdim=True))
        return torch.stack(answers, 1)


def measured(module: nn.Module, **options: object) -> Report:
    subject = memaudit.wrap(module, input_size=1)
    probe = Stability(**{"group": "recurrent", "steps": 20, **options})  # type: ignore[arg-type]
    return memaudit.scan(subject, queries=[], probes=[probe], level="quick")


LAMBDAS = [
    torch.tensor([0.9, 0.5, 0.2], dtype=DOUBLE),
    torch.tensor([0.99, 0.3], dtype=DOUBLE),
    torch.tensor([-0.95, 0.4, 0.8], dtype=DOUBLE),
]


@pytest.mark.parametrize("ball", ["spectral", "max-abs", "frobenius"])
@pytest.mark.parametrize("lam", LAMBDAS)
def test_direct_modes_may_move_by_their_distance_to_the_circle(lam: Tensor, ball: str) -> None:
    found = measured(Modes(lam, lambda w: w), ball=ball).stability
    exact = float((1 - lam.abs()).min())
    assert found.radius == pytest.approx(exact, rel=0.01)
    assert found.first.radius.closed_form == pytest.approx(exact, rel=1e-12)
    assert found.first.radius.criterion == "no mode reaches the boundary"


@pytest.mark.parametrize("dt", [0.1, 1.0])
def test_direct_rates_may_move_by_their_distance_to_zero(dt: float) -> None:
    w = torch.tensor([-0.05, -0.4, -2.0], dtype=DOUBLE)
    found = measured(Modes(w, lambda a: torch.exp(dt * a))).stability
    assert found.radius == pytest.approx(0.05, rel=0.01)
    assert found.first.radius.closed_form == pytest.approx(0.05, rel=1e-12)
    assert found.first.radius.formula == "min(-Re lambda)"


def test_rates_behind_an_exponential_never_reach_the_boundary() -> None:
    w = torch.tensor([-3.0, 0.0], dtype=DOUBLE)
    found = measured(Modes(w, lambda a: torch.exp(-torch.exp(a)))).stability
    assert found.radius == math.inf
    assert found.interval == (math.inf, math.inf)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_matrix_may_move_by_its_real_stability_radius(seed: int) -> None:
    draw = torch.randn(3, 3, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)
    weight = 0.8 * draw / torch.linalg.eigvals(draw).abs().max()
    found = measured(Matrix(weight)).stability
    assert found.first.radius.closed_form == pytest.approx(dense.real_radius(weight), rel=1e-9)
    assert found.radius == pytest.approx(dense.real_radius(weight), rel=0.02)


def test_errors_rise_with_beta_and_ascent_is_never_below_the_draws() -> None:
    curve = measured(Modes(LAMBDAS[0], lambda w: w)).stability.first
    assert (np.diff(curve.errors) >= 0).all()
    assert (curve.ascent >= curve.random).all()
    assert curve.errors[0] > 0


def test_the_error_of_one_mode_under_an_impulse_is_that_of_the_ends_of_its_interval() -> None:
    lam, beta, steps = 0.6, 0.05, 20
    module = Modes(torch.tensor([lam], dtype=DOUBLE), lambda w: w)
    found = measured(module, betas=(beta,), norm="sup", steps=steps).stability
    t = np.arange(steps)
    # Of all inputs bounded by one, a constant moves a positive kernel most.
    constant = np.cumsum((lam + beta) ** t - lam**t).max() * 0.5
    assert found.errors[0] == pytest.approx(constant, rel=1e-3)


def test_groups_are_moved_one_by_one_and_all_of_them_is_the_worst() -> None:
    module = Modes(LAMBDAS[0], lambda w: w)
    report = measured(module, group=("recurrent", "readout", "all"), betas=(0.01, 0.05))
    curves = {curve.group: curve for curve in report.stability.curves}
    assert curves["readout"].weights == ("c",)
    assert set(curves["all"].weights) == {"w", "c"}
    assert (curves["all"].errors >= curves["recurrent"].errors).all()
    assert (curves["all"].errors >= curves["readout"].errors).all()


def test_a_target_is_what_the_error_is_held_against() -> None:
    module = Modes(LAMBDAS[0], lambda w: w)
    report = measured(module, target=lambda u: torch.zeros_like(u), betas=(1e-9, 0.01))
    own = measured(module, betas=(1e-9, 0.01))
    assert own.stability.errors[0] < 1e-6 < report.stability.errors[0]
    assert report.stability.reference.startswith("a target functional")


def test_the_model_is_bit_identical_afterwards_and_numbers_repeat() -> None:
    module = Modes(LAMBDAS[0], lambda w: w)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    first, second = measured(module), measured(module)
    assert first.stability == second.stability
    assert all(torch.equal(before[n], v) for n, v in module.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in module.parameters())


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("ball", "round"),
        ("norm", "l7"),
        ("group", "bias"),
        ("betas", (0.1, -1.0)),
        ("betas", ("a",)),
        ("draws", 0),
        ("ascent", -1),
        ("steps", 1),
        ("target", "abc"),
    ],
)
def test_a_wrong_option_is_named(option: str, value: object) -> None:
    with pytest.raises(ArgumentError, match=f"stability.{option}"):
        Stability(**{option: value})  # type: ignore[arg-type]


def test_a_function_has_no_weights_to_move() -> None:
    subject = memaudit.wrap(lambda u: u.cumsum(1), input_size=1)
    report = memaudit.scan(subject, queries=["impulse"], probes=["stability"], horizon=64)
    assert report.stability is None
    assert not report.complete
    assert "cannot be moved" in report.errors[0]["message"]
    assert report.memory["impulse"].decay.kind == "persistent"


def test_rates_behind_a_relu_reach_the_boundary_exactly() -> None:
    w = torch.tensor([0.3, 0.7], dtype=DOUBLE)
    found = measured(Modes(w, lambda a: torch.exp(-torch.relu(a)))).stability
    assert found.radius == pytest.approx(0.3, rel=0.01)


class Unnamed(nn.Module):
    """A recurrence whose weight nobody would know for one."""

    def __init__(self) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.tensor([0.9, 0.5], dtype=DOUBLE))
        self.head = nn.Linear(2, 1, dtype=DOUBLE)

    def forward(self, u: Tensor) -> Tensor:
        state, answers = torch.zeros_like(u[:, 0]), []
        for now in u.unbind(1):
            state = self.theta * state + now
            answers.append(self.head(state))
        return torch.stack(answers, 1)


def test_where_no_weight_is_known_to_be_recurrent_all_of_them_come_first() -> None:
    subject = memaudit.wrap(Unnamed(), input_size=1)
    probe = Stability(steps=20, betas=(0.01, 0.1), draws=2, ascent=0)
    found = memaudit.scan(subject, queries=[], probes=[probe], level="quick").stability
    assert found.first.group == "all"
    assert "memaudit_roles" in found.note


class Complex(nn.Module):
    """h' = lambda h + u with complex lambda, read out by real parts."""

    memaudit_roles: ClassVar[dict[str, str]] = {"lam": "recurrent"}

    def __init__(self, lam: Tensor) -> None:
        super().__init__()
        self.lam = nn.Parameter(lam)

    def modes(self) -> Tensor:
        return self.lam

    def forward(self, u: Tensor) -> Tensor:
        state, answers = torch.zeros_like(u[:, 0] * self.lam), []
        for now in u.unbind(1):
            state = self.lam * state + now
            answers.append(state.real.sum(-1, keepdim=True))
        return torch.stack(answers, 1)


@pytest.mark.parametrize("lam", [[0.6 + 0.6j], [0.9 + 0j, 0.9j], [-0.3 + 0.4j, 0.2j]])
def test_complex_modes_move_by_their_modulus(lam: list[complex]) -> None:
    module = Complex(torch.tensor(lam, dtype=torch.complex128))
    exact = 1 - max(abs(value) for value in lam)
    found = measured(module).stability
    assert found.radius == pytest.approx(exact, rel=0.01)
    assert found.first.radius.closed_form == pytest.approx(exact, rel=1e-9)


def test_an_error_that_passes_beyond_the_grid_is_found_there() -> None:
    module = Modes(LAMBDAS[0], lambda w: w)
    near = measured(module, group="readout", betas=(0.001, 0.01)).stability
    wide = measured(module, group="readout", betas=(0.1, 1.0, 4.0)).stability
    assert near.radius == pytest.approx(wide.radius, rel=0.02)
    assert math.isfinite(near.radius)


def test_the_tolerance_radius_does_not_depend_on_the_grid() -> None:
    module = Modes(LAMBDAS[0], lambda w: w)
    grids = [(0.1,), (0.001, 0.1), (0.001, 0.003, 0.01, 0.03, 0.1)]
    found = [measured(module, betas=grid).stability.first.tolerance_radius.value for grid in grids]
    assert found == pytest.approx([found[-1]] * len(grids), rel=0.02)
