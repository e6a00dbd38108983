"""Functions of raw weights: the modulus, the stable domain, the ends of a set of numbers."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from memaudit.numerics.reparameterization import interval_of, kernel_change, modulus, raw_domain
from memaudit.reparams import Best, Exp, forms

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


EPS = torch.finfo(torch.float64).eps


def test_exponential_rates_end_at_the_rounding_of_one_and_its_inverse():
    low, high = raw_domain(Exp().forward, torch.zeros(1, dtype=torch.float64), time="continuous")
    assert low == pytest.approx(math.log(EPS), rel=1e-12)
    assert high == pytest.approx(-math.log(EPS), rel=1e-12)


def test_best_ends_where_its_rate_is_the_rounding_of_one():
    form = Best(a=1.0, b=0.5)
    low, high = raw_domain(form.forward, torch.ones(1, dtype=torch.float64), time="continuous")
    assert high == pytest.approx(math.sqrt(1 / EPS), rel=1e-6)
    assert low == pytest.approx(-high, rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("form", [f for time in ("continuous", "discrete") for f in forms(time)])
def test_inside_of_it_every_stable_form_is_stable_and_has_a_gradient(form, dtype):
    if not form.stable:
        return
    w = torch.tensor([0.8], dtype=dtype)
    low, high = raw_domain(form.forward, w, time=form.time)
    assert low < 0.8 < high
    raw = torch.tensor([low, high], dtype=dtype).requires_grad_()
    lam = form.forward(raw.clamp(low, high))
    lam.sum().backward()
    assert raw.grad is not None
    assert raw.grad.isfinite().all()
    inside = lam < 0 if form.time == "continuous" else lam.abs() < 1
    assert inside.all()


@given(low=st.integers(-900, -1), high=st.integers(1, 900))
def test_round_ends_are_found_exactly(low, high):
    found = interval_of(lambda x: low / 8 <= x <= high / 8)
    assert found is not None
    assert (found.low, found.high, found.closed) == (low / 8, high / 8, (True, True))
