"""Settling: fixed points as they are known, and everything else called what it is."""

from __future__ import annotations

import math
import re

import pytest
import torch

from memaudit.subjects.recurrence import FEWEST_STEPS, MOST_STEPS, settle, trajectory
from tests.recurrences import Map, linear, number, rotation, tanh_network


def held(value: float, *, width: int = 1) -> torch.Tensor:
    return torch.full((1, width), value, dtype=torch.float64)


def at_rest(dynamics: Map, value: float = 0.0):
    (found,) = settle(dynamics, held(value))
    return found


@pytest.mark.parametrize(("lam", "u"), [(0.9, 1.0), (-0.5, 2.0), (0.99, -1.0)])
def test_a_linear_map_settles_at_u_over_one_minus_lam(lam: float, u: float) -> None:
    found = at_rest(linear(number(lam)[None]), u)
    assert found.at_rest
    assert float(found.state) == pytest.approx(u / (1 - lam), rel=1e-12)
    assert found.steps >= FEWEST_STEPS


def test_a_state_that_begins_at_rest_stays_and_is_watched_for_512_steps() -> None:
    found = at_rest(linear(number(0.5)[None]))
    assert found.at_rest
    assert float(found.state) == 0.0
    assert found.steps == FEWEST_STEPS


def test_rows_settle_as_if_they_were_alone() -> None:
    dynamics = tanh_network(8, 0.7)
    inputs = torch.tensor([[0.0], [1.0], [-1.0]], dtype=torch.float64)
    together = settle(dynamics, inputs)
    for row, found in enumerate(together):
        (alone,) = settle(dynamics, inputs[row : row + 1])
        torch.testing.assert_close(found.state, alone.state, rtol=0, atol=1e-15)
        assert found.at_rest


def test_a_saddle_that_is_left_late_is_no_rest() -> None:
    found = at_rest(Map(lambda s, u: torch.tanh(1.2 * s + u), number(1e-30)))
    assert found.at_rest
    # s = tanh(1.2 s) > 0, not the unstable rest at zero
    assert math.tanh(1.2 * float(found.state)) == pytest.approx(float(found.state), rel=1e-12)
    assert float(found.state) > 0.5


def test_a_cycle_is_named_with_its_period() -> None:
    found = at_rest(Map(lambda s, u: 3.2 * s * (1 - s) + u, number(0.3)))
    assert not found.at_rest
    assert "a cycle of 2 steps" in found.motion


def test_a_slow_rotation_is_not_called_settled() -> None:
    found = at_rest(linear(rotation(1.0, 0.1), first=torch.tensor([1.0, 0.0]).double()))
    assert not found.at_rest
    # Between two looks it turns by 0.1: the farther number moves by 0.1·sqrt(1/2) to 0.1.
    moved = re.fullmatch(r"the state still moves by (\S+) of its size a step", found.motion)
    assert moved is not None
    assert 0.07 < float(moved[1]) <= 0.1
    assert found.steps == MOST_STEPS


def test_a_drift_is_not_called_settled() -> None:
    found = at_rest(Map(lambda s, u: s + 1.0 + u, number(0.0)))
    assert "still moves by 1.2e-04 of its size" in found.motion


def test_a_state_that_overflows_ends_where_it_is_finite() -> None:
    found = at_rest(Map(lambda s, u: 2.0 * s + u, number(1.0)))
    assert "not finite" in found.motion
    assert found.steps == 1023
    assert float(found.state) == 2.0**1023


def test_a_trajectory_is_the_states_in_which_the_inputs_arrive() -> None:
    dynamics = linear(number(0.5)[None], first=number(1.0))
    states = trajectory(dynamics, torch.tensor([[0.0], [1.0], [5.0]], dtype=torch.float64))
    assert states[:, 0].tolist() == [1.0, 0.5, 1.25]
