"""`check_reparam` refutes what a form says wrongly about itself, in a sentence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from memaudit.interfaces import AbstractReparam
from memaudit.reparams import Best, Direct
from memaudit.testing import check_reparam


@dataclass(frozen=True, slots=True)
class Honest(AbstractReparam):
    """f(w) = -e^w, with nothing but what the contract asks for."""

    name: ClassVar[str] = "honest"
    summary: ClassVar[str] = "an outsider's form"
    times: ClassVar[tuple[str, ...]] = ("continuous",)
    stable: ClassVar[bool] = True

    def forward(self, w):
        return -w.exp()

    def inverse(self, lam):
        return (-lam).log()

    def contains(self, lam):
        return (lam < 0.0) & lam.isfinite()

    def modulus(self, beta):
        return math.expm1(beta)


class CalledStable(Direct):
    stable: ClassVar[bool] = True


class WithAModulus(CalledStable):
    def modulus(self, beta):
        return beta


class CalledUnstable(Honest):
    stable: ClassVar[bool] = False


class SmallModulus(Honest):
    def modulus(self, beta):
        return 0.9 * math.expm1(beta)


class EndlessModulus(Honest):
    def modulus(self, beta):
        return math.inf


class HoldsWhatItCannotReach(Honest):
    def forward(self, w):
        return -1.0 / (w.square() + 0.5)

    def inverse(self, lam):
        return (-1.0 / lam - 0.5).clamp(min=0.0).sqrt()


class HoldsUnstableModes(Honest):
    def contains(self, lam):
        return lam.isfinite()


class DeniesSlowModes(Honest):
    def contains(self, lam):
        return (lam < -0.5) & lam.isfinite()


class AnswersByNumbers(Honest):
    def contains(self, lam):
        return ((lam < 0.0) & lam.isfinite()).double()


class FitsTooTightly(Best):
    def fitted(self, lam):
        return Best(b=100.0)


class NoInverse(Honest):
    def inverse(self, lam):
        return -lam


class GradientIsNoNumber(Honest):
    """At w = 2 the branch that is not taken divides by zero."""

    def forward(self, w):
        return torch.where(w == 2.0, -w.exp(), -w.exp() * (w - 2.0) / (w - 2.0))


class LeavesFarAway(Honest):
    def forward(self, w):
        return torch.where(w < 15.0, -w.exp(), w)


class LeavesBeyondSight(Honest):
    def forward(self, w):
        return torch.where(w < 1e6, -w.exp(), w)


class TouchesTheBoundary(Honest):
    def forward(self, w):
        return torch.where(w < -15.0, torch.zeros_like(w), -w.exp())


class WrongScale(Honest):
    def gradient_scale(self, w):
        return w.double().exp()


class DiscreteAndCalledStable(Direct):
    stable: ClassVar[bool] = True

    def contains(self, lam):
        return lam.abs() < 1.0


LIARS = {
    CalledStable(): "called stable, yet modulus",
    WithAModulus(): "where the definition gives inf",
    CalledUnstable(): "not called stable, yet modulus",
    SmallModulus(): "where the definition gives",
    EndlessModulus(): "where the definition gives",
    HoldsWhatItCannotReach(): "contains holds an eigenvalue that is missed",
    HoldsUnstableModes(): "contains holds an eigenvalue without a finite raw weight",
    DeniesSlowModes(): "contains denies an eigenvalue that forward gives",
    AnswersByNumbers(): "contains does not answer by a boolean",
    FitsTooTightly(): "fitted to eigenvalues, it denies one",
    NoInverse(): "is off by",
    GradientIsNoNumber(): "the gradient is not finite at w = 2",
    LeavesFarAway(): "called stable, and is not at w = 15",
    LeavesBeyondSight(): r"called stable, and is not at w = 1e\+08",
    TouchesTheBoundary(): "called stable, and is not at w = -18",
    WrongScale(): "gradient_scale is not",
    DiscreteAndCalledStable("discrete"): "contains denies an eigenvalue that forward gives",
    CalledStable("discrete"): "called stable, and gives an unstable mode",
}


def test_a_form_that_keeps_the_laws_passes_without_a_closed_scale():
    check_reparam(Honest())
    assert Honest().scale_formula == ""
    w = torch.tensor([-1.0, 0.0, 2.0], dtype=torch.float64)
    torch.testing.assert_close(Honest().gradient_scale(w), (-w).exp(), rtol=1e-14, atol=0.0)


@pytest.mark.parametrize(
    "liar", [pytest.param(f, id=f"{type(f).__name__}-{f.time}") for f in LIARS]
)
def test_a_wrong_claim_is_refuted(liar):
    with pytest.raises(AssertionError, match=LIARS[liar]):
        check_reparam(liar)


def test_a_form_without_numbers_is_refuted():
    class Empty(Honest):
        def forward(self, w):
            return w * math.nan

    with pytest.raises(AssertionError, match="not finite"):
        check_reparam(Empty())
