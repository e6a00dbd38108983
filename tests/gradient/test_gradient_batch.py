"""The gradient of a batch and a loss that somebody gives."""

from __future__ import annotations

import pytest
import torch

from memaudit.contracts import Setting
from memaudit.errors import ArgumentError
from memaudit.gradient.probe import Gradient
from memaudit.reparams.exp import Exp
from tests.stability.diagonal_models import DiagonalCopies, DiagonalSubject

SETTING = Setting(horizon=64)
RATES = torch.tensor([-1.7, -0.8, -0.31, -0.07, -0.012], dtype=torch.float64)


def test_the_own_batch_and_loss_take_the_place_of_the_synthetic_ones():
    copies = DiagonalCopies(Exp(), RATES)
    u = torch.ones(2, 7, 1, dtype=torch.float64)
    target = torch.full((2, 7, 1), 3.0, dtype=torch.float64)
    w = copies.weights["w"][None].clone().requires_grad_()
    loss = (copies.respond(u, {"w": w})[0] - target).abs().sum()
    (slope,) = torch.autograd.grad(loss, w)
    exact = float((slope / w).detach().abs().max())
    probe = Gradient(batch=(u, target), loss_fn=lambda y, wanted: (y - wanted).abs().sum())
    (record,) = probe.measure(DiagonalSubject(copies), SETTING).layers
    assert record.own == pytest.approx(exact, rel=1e-12)
    assert record.loss == "the given loss on the given batch"
    (squares,) = Gradient(batch=(u, target)).measure(DiagonalSubject(copies), SETTING).layers
    assert squares.own != pytest.approx(exact)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"loss": "task"}, "given in Python"),
        ({"steps": 1}, "whole number"),
        ({"batch": 3}, "no pair"),
        ({"loss_fn": max}, "nothing to be called with"),
    ],
)
def test_wrong_options_are_refused(options, told):
    with pytest.raises(ArgumentError, match=told):
        Gradient(**options)


@pytest.mark.parametrize(
    ("batch", "loss_fn", "told"),
    [
        ((torch.ones(2, 5, dtype=torch.int64), None), None, "embedding first"),
        ((torch.ones(2, 5, 3), None), None, "floats of shape"),
        ((torch.ones(2, 5, 1), None), None, "not a tensor"),
        ((torch.ones(2, 5, 1), torch.ones(5)), None, "the answers"),
        ((torch.ones(2, 5, 1), None), lambda y, _: y, "one number"),
        ((torch.ones(2, 5, 1), None), lambda y, _: y.detach().sum(), "does not depend"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused(batch, loss_fn, told):
    subject = DiagonalSubject(DiagonalCopies(Exp(), RATES))
    with pytest.raises(ArgumentError, match=told):
        Gradient(batch=batch, loss_fn=loss_fn).measure(subject, SETTING)
