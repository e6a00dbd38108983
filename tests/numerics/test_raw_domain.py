"""How far raw weights of stable forms may go, against what can be worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from memaudit.numerics.raw_domain import raw_domain
from memaudit.reparams import Best, Exp, forms

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


def test_modes_that_are_slower_already_stay_inside():
    w = torch.tensor([-50.0], dtype=torch.float64)
    low, _ = raw_domain(Exp().forward, w, time="continuous")
    assert low == pytest.approx(-50.0)


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
