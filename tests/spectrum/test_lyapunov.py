"""Lyapunov exponents against closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from memaudit.numerics.signals import seeded
from memaudit.subjects.jacobian import Exponent, exponent_of, lyapunov
from tests.recurrences import Map, linear, number, rotation, stack_of_two, tanh_network


def no_input(steps: int) -> torch.Tensor:
    return torch.zeros(steps, 1, dtype=torch.float64)


def exponents(dynamics: Map, steps: int = 512) -> dict[str, Exponent]:
    return lyapunov(dynamics, no_input(steps), generator=seeded(0))


def of(dynamics: Map, steps: int = 512) -> Exponent:
    return exponents(dynamics, steps)["cell"]


def test_a_linear_map_has_the_log_of_its_largest_eigenvalue() -> None:
    found = of(linear(torch.diag(torch.tensor([0.9, -0.95, 0.5], dtype=torch.float64))))
    assert found.value == pytest.approx(math.log(0.95), abs=1e-6)
    assert found.interval[0] <= found.value <= found.interval[1]


def test_a_shrinking_rotation_has_its_modulus() -> None:
    assert of(linear(rotation(0.9, 0.7))).value == pytest.approx(math.log(0.9), abs=1e-14)


def test_the_logistic_map_at_four_has_log_two() -> None:
    found = of(Map(lambda s, u: 4.0 * s * (1.0 - s), number(0.3)), 4096)
    assert found.value == pytest.approx(math.log(2.0), abs=0.02)
    assert found.interval[0] > 0.0


def test_a_tanh_map_has_the_multiplier_of_its_fixed_point() -> None:
    found = of(Map(lambda s, u: torch.tanh(2.0 * s + u), number(0.4)))
    fixed = 0.9575040240772687  # s = tanh(2 s)
    assert found.value == pytest.approx(math.log(2.0 * (1.0 - fixed**2)), abs=1e-9)


@pytest.mark.parametrize("gain", [1.5, 2.0])
def test_a_random_network_of_large_gain_is_chaotic(gain: float) -> None:
    found = of(tanh_network(100, gain), 1024)
    assert found.interval[0] > 0.0


def test_blocks_have_exponents_of_their_own() -> None:
    dynamics = stack_of_two(0.9 * torch.eye(2).double(), torch.diag(number(0.5).repeat(2)))
    found = exponents(dynamics)
    assert found["lower"].value == pytest.approx(math.log(0.9), abs=1e-9)
    # s = tanh(0.5 s + 0.3)
    state = 0.0
    for _ in range(200):
        state = math.tanh(0.5 * state + 0.3)
    assert found["upper"].value == pytest.approx(math.log(0.5 * (1.0 - state**2)), abs=1e-9)


def test_a_cell_that_forgets_at_once_has_no_exponent() -> None:
    assert exponents(Map(lambda s, u: torch.relu(s - 10.0), number(0.0))) == {}
    assert exponents(Map(lambda s, u: u, number(0.0))) == {}


def test_the_interval_spans_two_standard_errors_of_the_segments() -> None:
    logs = np.repeat(np.arange(8.0), 10)
    found = exponent_of(logs)
    reach = 2 * np.std(np.arange(8.0), ddof=1) / math.sqrt(8)
    assert found.value == 3.5
    assert found.interval == pytest.approx((3.5 - reach, 3.5 + reach))
