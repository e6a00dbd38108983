"""The change of a mode's kernel, against sums and integrals, and the search for its supremum."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from memaudit.numerics.modulus import kernel_change, modulus

MODES = st.floats(-0.95, 0.95)


def number(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


@settings(deadline=None)
@given(first=MODES, second=MODES)
def test_the_discrete_change_is_the_sum_over_all_lags(first, second):
    t = torch.arange(2000, dtype=torch.float64)
    summed = (number(first) ** t - number(second) ** t).abs().sum()
    share = float(summed / (number(first).abs() ** t).sum())
    found = kernel_change(number(first), number(second), time="discrete")
    assert float(found) == pytest.approx(share, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("first", "second"), [(-0.2, -5.0), (-5.0, -0.2), (-1.0, -1.1)])
def test_the_continuous_change_is_the_integral(first, second):
    t = torch.linspace(0.0, 200.0, 400_001, dtype=torch.float64)
    apart = ((first * t).exp() - (second * t).exp()).abs()
    share = abs(first) * float(torch.trapezoid(apart, t))
    found = kernel_change(number(first), number(second), time="continuous")
    assert float(found) == pytest.approx(share, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(
    ("moved", "time"),
    [(0.0, "continuous"), (0.3, "continuous"), (1.0, "discrete"), (-1.0, "discrete")],
)
def test_a_kernel_that_does_not_decay_is_infinitely_far_away(moved, time):
    assert math.isinf(float(kernel_change(number(-0.5), number(moved), time=time)))


def test_the_search_finds_a_peak_between_the_points_of_its_grid():
    """f(w) = -1/(1 + (w - pi)²): the peak of best, off the grid; g = beta / w*."""
    beta, star = 0.3, (math.hypot(0.3, 2.0) - 0.3) / 2.0
    found = modulus(lambda w: -1.0 / (1.0 + (w - math.pi).square()), beta, time="continuous")
    assert found == pytest.approx(beta / star, rel=1e-6)


def test_no_move_is_no_change():
    assert modulus(lambda w: -w.exp(), 0.0, time="continuous") == pytest.approx(0.0, abs=1e-12)
