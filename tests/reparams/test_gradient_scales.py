"""Gradient scales: the closed form of every reparameterization against the numeric one."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from memaudit.numerics.reparameterization import gradient_scale
from memaudit.reparams.best import Best
from memaudit.reparams.clip import Clip
from memaudit.reparams.direct import Direct
from memaudit.reparams.exp import Exp
from memaudit.reparams.forms import forms
from memaudit.reparams.heavytail import Heavytail
from memaudit.reparams.inverse import Inverse
from memaudit.reparams.relu import Relu

EVERY = [form for time in ("continuous", "discrete") for form in forms(time)]
EVERY += [Best(a=3.0, b=0.2), Best("discrete", a=0.7, b=0.9), Clip(ceiling=-0.5), Inverse(floor=2)]
NAMED = [pytest.param(form, id=repr(form)) for form in EVERY]


@pytest.mark.parametrize("form", NAMED)
@settings(deadline=None, max_examples=40)
@given(hundredths=st.integers(-600, 600))
def test_the_closed_scale_is_the_numeric_one(form, hundredths):
    raw = torch.tensor([hundredths / 100], dtype=torch.float64)
    closed, numeric = form.gradient_scale(raw), gradient_scale(form.forward, raw, time=form.time)
    # Near the boundary 1 - f keeps few digits in the numeric one: tanh(6) leaves eleven.
    torch.testing.assert_close(closed, numeric, rtol=1e-9, atol=1e-280)


@pytest.mark.parametrize("form", NAMED)
def test_every_form_of_ours_tells_its_scale(form):
    assert form.scale_formula
    assert form.gradient_scale(torch.tensor([0.3])).dtype == torch.float64


def test_the_scales_are_those_of_the_definitions():
    w = torch.tensor([-2.0, -0.5, 0.5, 2.0], dtype=torch.float64)
    assert Best(a=2.0).gradient_scale(w).tolist() == [8.0, 2.0, 2.0, 8.0]
    assert Heavytail().gradient_scale(w).amax() == 1.0
    assert Exp().gradient_scale(w).tolist() == (-w).exp().tolist()


def test_the_scale_is_infinite_on_the_boundary_unless_nothing_moves_there():
    zero, one = torch.zeros(1), torch.ones(1)
    assert math.isinf(Direct().gradient_scale(zero).item())
    assert math.isinf(Direct("discrete").gradient_scale(one).item())
    assert Relu().gradient_scale(zero).item() == 0.0
    assert Relu("discrete").gradient_scale(zero).item() == 0.0


@pytest.mark.parametrize("form", NAMED)
def test_the_closed_scale_of_far_weights_is_never_nan(form):
    w = torch.tensor([-1e4, -700.0, 0.0, 700.0, 1e4], dtype=torch.float64)
    assert not form.gradient_scale(w).isnan().any()
