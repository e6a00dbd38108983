"""Learning rates that are called safe, taken: one step of gradient descent, and what it leaves."""

from __future__ import annotations

import math
from typing import ClassVar

import pytest
import torch
from torch import nn

import memaudit
from memaudit.contracts import Setting
from memaudit.gradient.forms import learning_rate
from memaudit.gradient.probe import Gradient
from memaudit.reparams.clip import Clip
from memaudit.reparams.direct import Direct
from memaudit.reparams.exp import Exp
from memaudit.reparams.forms import forms
from memaudit.reparams.softplus import Softplus
from tests.stability.diagonal_models import DiagonalCopies, DiagonalSubject, SharedRates

SETTING = Setting(horizon=64)
RATES = torch.tensor([-1.7, -0.8, -0.31, -0.07, -0.012], dtype=torch.float64)


def doubles(*values):
    return torch.tensor(values, dtype=torch.float64)


def measured(copies):
    (record,) = Gradient().measure(DiagonalSubject(copies), SETTING).layers
    return record


def told(record, name):
    return next(one for one in record.reparams if one.name == name)


@pytest.mark.parametrize("others", [(), (0.5,)])
def test_a_mode_whose_raw_weight_is_zero_stays_inside(others):
    """Of w = 0 the first boundary is a move of 1 away, whichever way it goes."""
    w = doubles(0.0, *others)
    slope = doubles(50.0, *(0.01 for _ in others))
    rate = learning_rate(lambda raw: raw, w, slope, time="discrete")
    assert rate == pytest.approx(1 / 50, rel=1e-12)
    assert float((w - 0.999 * rate * slope).abs().max()) < 1.0


class Eigenvalues(nn.Module):
    """h' = w h + u, y = c h, whose raw weights are the eigenvalues."""

    memaudit_roles: ClassVar[dict[str, str]] = {"w": "recurrent/diagonal", "c": "readout/vector"}
    parameterization = "direct"

    def __init__(self, w, c):
        super().__init__()
        self.w, self.c = nn.Parameter(doubles(*w)), nn.Parameter(doubles(*c))

    def modes(self):
        return self.w

    def forward(self, u):
        state, answers = torch.zeros(len(u), len(self.w), dtype=u.dtype), []
        for now in u.unbind(1):
            state = state * self.w + now
            answers.append((state * self.c).sum(-1, keepdim=True))
        return torch.stack(answers, 1)


@pytest.mark.parametrize("w", [(0.0, 0.5), (0.0, 0.0)])
def test_one_step_at_the_safe_rate_keeps_the_modes_of_weights_of_zero(w):
    model, draw = Eigenvalues(w, (50.0, 0.01)), torch.Generator().manual_seed(0)
    u, y = torch.randn(2, 3, 40, 1, generator=draw, dtype=torch.float64)
    (slope,) = torch.autograd.grad((model(u) - y).square().mean(), model.w)
    (record,) = Gradient(batch=(u, y)).measure(memaudit.wrap(model, input_size=1), SETTING).layers
    rate = told(record, "direct").learning_rate
    lam = model.w.detach()
    assert float((lam - 0.999 * rate * slope).abs().max()) < 1.0
    assert float((lam - 1.001 * rate * slope).abs().max()) > 1.0


def test_a_weight_of_zero_whose_mode_nothing_drives_out_sets_no_rate():
    def clipped(w):
        return w.clamp(-0.5, 0.5)

    assert learning_rate(clipped, doubles(0.0), doubles(3.0), time="discrete") == math.inf
    rate = learning_rate(clipped, doubles(0.0, 0.4), doubles(3.0, 2.0), time="discrete")
    assert rate == pytest.approx(0.2, rel=1e-12)


def test_weights_that_are_all_zero_are_not_called_weights_without_a_gradient():
    record = measured(DiagonalCopies(Exp(), doubles(-1.0, -1.0)))
    assert (record.current, "2 of 2 raw weights are zero" in record.note) == ("exp", True)
    assert "No mode has a gradient" not in record.reasoning


def test_the_rate_names_its_weight_and_a_smaller_one_for_all_weights_is_told():
    copies = SharedRates(Exp(), RATES, blocks=True)
    # A step size of e^0.001: moving its raw weight by its own size takes next to nothing.
    copies.weights = {**copies.weights, "log_dt": doubles(-0.001, -1.6)}
    record = measured(copies)
    assert record.decay == "w"
    assert record.own is not None
    safe = told(record, record.recommended).learning_rate
    assert 1 / record.own < 0.5 * safe
    assert f"Plain gradient descent on w with {record.recommended}" in record.reasoning
    assert f"from a rate of {1 / record.own:.3g} on one of them" in record.reasoning


def test_a_layer_of_one_weight_is_told_one_rate():
    assert "together need less" not in measured(DiagonalCopies(Softplus(), RATES)).reasoning


def test_adamw_comes_first_with_the_smallest_weights_of_both_forms():
    record = measured(DiagonalCopies(Direct(), RATES))
    assert record.recommended != "direct"
    assert record.reasoning.startswith("AdamW moves every weight by about one learning rate")
    form = next(one for one in forms("continuous") if one.name == record.recommended)
    smallest = float(form.inverse(RATES).abs().min())
    assert f"(0.012 with direct, {smallest:.3g} with {form.name}; w)" in record.reasoning


def test_forms_that_are_never_recommended_say_why():
    record = measured(DiagonalCopies(Clip(), doubles(-3.0, -1.0, -0.5)))
    barred = {one.name: one.barred for one in record.reparams}
    assert (barred["clip"], barred["inverse"]) == ("flat", "flat")
    assert (barred["direct"], barred["best"]) == ("unstable", "reach")
    assert (barred["exp"], barred["softplus"]) == ("zero weight", "")
    assert barred[record.recommended] == ""
