"""The spectrum probe on nonlinear recurrences: at rest and under inputs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import memaudit
from memaudit.errors import ArgumentError
from memaudit.interfaces import AbstractSubject, Setting, StateBlock
from memaudit.report import Identity
from memaudit.spectrum.probe import Spectrum
from memaudit.testing import check_probe
from tests.recurrences import Map, linear, number, rotation, stack_of_two, tanh_network


class Host(AbstractSubject):
    """Recurrences without a model around them."""

    def __init__(self, *recurrences: Map, natural: torch.Tensor | None = None, known=()) -> None:
        self.identity = Identity("host", "wrap", "host", 0, "float64", "cpu")
        self.input_size, self.pooled = recurrences[0].width, False
        self.device, self.dtype = torch.device("cpu"), torch.float64
        self._recurrences, self._natural, self._known = recurrences, natural, tuple(known)

    def respond(self, inputs):
        return inputs

    def natural_inputs(self, count, generator):
        return None if self._natural is None else self._natural[:count]

    def spectra(self, inputs=None):
        return self._known

    def dynamics(self):
        return {str(index): item for index, item in enumerate(self._recurrences)}


def found_in(*recurrences: Map, trajectory: int = 64, **options):
    return Spectrum(trajectory=trajectory).measure(Host(*recurrences, **options), Setting()).layers


def test_a_tanh_cell_has_its_slope_at_rest_and_under_held_inputs() -> None:
    (found,) = found_in(Map(lambda s, u: torch.tanh(0.9 * s + u), number(0.0)))
    assert found.at == "rest: zero input, settled after 512 steps"
    assert found.eigenvalues.tolist() == pytest.approx([0.9])
    points = {point.at: float(abs(point.eigenvalues[0])) for point in found.points}
    state = 0.0
    for _ in range(500):
        state = math.tanh(0.9 * state + 1.0)
    slope = 0.9 * (1 - state**2)
    assert points["constant input +1"] == pytest.approx(slope, rel=1e-12)
    assert points["constant input -1"] == pytest.approx(slope, rel=1e-12)
    along = [points[f"trajectory {share} %"] for share in (5, 50, 95)]
    assert along == sorted(along)
    assert 0.0 < along[0] < along[2] <= 0.9
    assert found.lyapunov is not None
    assert math.log(along[0]) < found.lyapunov < math.log(0.9)


def test_every_block_is_a_spectrum_of_its_own_with_its_cell_and_form() -> None:
    eye = torch.eye(2, dtype=torch.float64)
    lower, upper = found_in(stack_of_two(0.8 * eye, 0.5 * eye))
    assert (lower.layer, lower.cell, lower.parameterization) == ("lower", "tanh", "direct")
    assert (upper.layer, upper.parameterization, upper.count) == ("upper", "exp", 2)
    assert lower.margin == pytest.approx(0.2)
    state = 0.0
    for _ in range(500):  # the lower layer rests at zero, the upper one does not
        state = math.tanh(0.5 * state + 0.3)
    assert upper.margin == pytest.approx(1 - 0.5 * (1 - state**2))


def test_a_state_that_never_settles_says_so() -> None:
    turning = linear(rotation(1.0, 0.3), first=torch.tensor([1.0, 0.0]).double())
    (found,) = found_in(turning)
    assert found.at == "rest: zero input, not settled after 8192 steps"
    assert "still moves" in found.note
    assert "the eigenvalues are those at the last state" in found.note
    assert np.abs(found.eigenvalues).tolist() == pytest.approx([1.0, 1.0])


def test_a_state_that_overflows_keeps_its_last_finite_eigenvalues() -> None:
    (found,) = found_in(Map(lambda s, u: 1.5 * s + u, number(1.0)))
    assert "not finite any more" in found.note
    assert found.margin == pytest.approx(-0.5)
    assert math.isinf(found.time_scale)


def test_recurrences_that_read_backwards_have_no_trajectory() -> None:
    (found,) = found_in(Map(lambda s, u: torch.tanh(0.9 * s + u), number(0.0), causal=False))
    assert [point.at for point in found.points] == ["constant input +1", "constant input -1"]
    assert found.lyapunov is None


def test_natural_vectors_are_held_and_make_the_trajectory() -> None:
    cell = Map(lambda s, u: torch.tanh(0.9 * s + u), number(0.0))
    (found,) = found_in(cell, natural=torch.full((4, 1), 3.0))
    points = {point.at: float(abs(point.eigenvalues[0])) for point in found.points}
    assert points["a natural input held"] < points["constant input +1"]
    # Under one vector only, the trajectory stays where that vector holds the state.
    assert points["trajectory 95 %"] == pytest.approx(points["a natural input held"], rel=1e-9)


def test_a_chaotic_network_has_a_positive_exponent() -> None:
    (found,) = found_in(tanh_network(40, 3.0), trajectory=256)
    assert found.lyapunov_interval is not None
    assert found.lyapunov_interval[0] > 0


def test_several_recurrences_stand_behind_each_other() -> None:
    blocks = {"other": StateBlock(0, 1, "map")}
    other = Map(lambda s, u: 0.25 * s + u, number(0.0), blocks=blocks)
    found = found_in(linear(number(0.9)[None]), other)
    assert [item.layer for item in found] == ["cell", "other"]
    assert [item.margin for item in found] == pytest.approx([0.1, 0.75])


def test_a_quick_audit_follows_a_shorter_trajectory() -> None:
    steps: list[int] = []

    def step(s, u):
        steps.append(len(s))
        return 0.5 * s + u

    Spectrum().measure(Host(Map(step, number(0.0))), Setting(level="quick"))
    quick = len(steps)
    steps.clear()
    Spectrum().measure(Host(Map(step, number(0.0))), Setting())
    assert quick < len(steps)


@pytest.mark.parametrize(
    "steps", [5, 31, 65537, 33.5, 64.0, math.nan, math.inf, True, "abc", "64", None, [64]]
)
def test_a_trajectory_is_a_whole_number_within_bounds(steps: Any) -> None:
    with pytest.raises(ArgumentError, match=r"spectrum\.trajectory is .* from 32 to 65536"):
        Spectrum(trajectory=steps)


def test_the_probe_keeps_the_laws() -> None:
    check_probe(Spectrum(trajectory=32), Host(tanh_network(3, 0.9)))


def test_the_option_of_the_probe_is_reached_by_its_name() -> None:
    class Cell(torch.nn.Module):
        def initial_state(self):
            return torch.zeros(1, dtype=torch.float64)

        def step(self, state, u):
            return torch.tanh(0.9 * state + u)

        def forward(self, inputs):
            state, answers = self.initial_state().expand(len(inputs), -1), []
            for u in inputs.unbind(1):
                state = self.step(state, u)
                answers.append(state)
            return torch.stack(answers, 1)

    subject = memaudit.wrap(Cell(), input_size=1)
    options: dict[str, Any] = {"spectrum.trajectory": 32}
    report = memaudit.scan(subject, horizon=64, level="quick", queries=["impulse"], **options)
    assert report.spectrum[0].layer == "Cell"
    assert report.spectrum[0].margin == pytest.approx(0.1)


class Gate(nn.Module):
    """h' = sigmoid(w) h + u, which says nothing about its form."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([3.0, 1.0], dtype=torch.float64))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        states = [inputs.new_zeros(len(inputs), 2)]
        for u in inputs.unbind(1):
            states.append(torch.sigmoid(self.w) * states[-1] + u)
        return torch.stack(states[1:], 1)


class Stepping(Gate):
    def initial_state(self) -> torch.Tensor:
        return torch.zeros(2, dtype=torch.float64)

    def step(self, state: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.w) * state + u


class Telling(Gate):
    def modes(self) -> torch.Tensor:
        return torch.sigmoid(self.w)


@pytest.mark.parametrize("kind", [Stepping, Telling])
@pytest.mark.parametrize(("form", "codes"), [(None, []), ("direct", ["MA203"])])
def test_only_a_module_that_says_so_is_called_directly_parameterized(kind, form, codes) -> None:
    module = kind()
    if form is not None:
        module.parameterization = form
    subject = memaudit.wrap(module, input_size=1)
    made = memaudit.scan(subject, horizon=16, queries=["impulse"], probes=["spectrum"])
    assert [item.parameterization for item in made.spectrum] == [form or "unknown"]
    assert [f.code for f in made.findings if f.code == "MA203"] == codes
