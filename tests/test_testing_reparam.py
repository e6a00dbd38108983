"""`check_reparam` says what a form states wrongly about itself."""

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
    summary: ClassVar[str] = "a form of a plugin"
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


def changed(base: type = Honest, time: str = "continuous", **members):
    return type("Changed", (base,), members)(time)


def beyond(limit: float):
    return lambda self, w: torch.where(w < limit, -w.exp(), w)


WRONG = [
    (changed(Direct, stable=True), "called stable, yet modulus"),
    (changed(Direct, "discrete", stable=True), "called stable, and gives an unstable mode"),
    (changed(stable=False), "not called stable, yet modulus"),
    (changed(modulus=lambda self, beta: 0.9 * math.expm1(beta)), "where the definition gives"),
    (changed(contains=lambda self, lam: lam.isfinite()), "without a finite raw weight"),
    (changed(contains=lambda self, lam: lam < -0.5), "denies an eigenvalue that forward gives"),
    (changed(contains=lambda self, lam: (lam < 0.0).double()), "does not answer by a boolean"),
    (changed(Best, fitted=lambda self, lam: Best(b=100.0)), "fitted to eigenvalues, it denies one"),
    (changed(inverse=lambda self, lam: -lam), "is off by"),
    (changed(forward=beyond(15.0)), "called stable, and is not at w = 15"),
    (changed(forward=beyond(1e6)), r"called stable, and is not at w = 1e\+08"),
    (changed(gradient_scale=lambda self, w: w.double().exp()), "gradient_scale is not"),
    (changed(forward=lambda self, w: w * math.nan), "not finite"),
]


def test_a_form_without_a_closed_gradient_scale_passes():
    check_reparam(Honest())
    w = torch.tensor([-1.0, 0.0, 2.0], dtype=torch.float64)
    torch.testing.assert_close(Honest().gradient_scale(w), (-w).exp(), rtol=1e-14, atol=0.0)


@pytest.mark.parametrize(("form", "fact"), WRONG)
def test_a_wrong_statement_is_found(form, fact):
    with pytest.raises(AssertionError, match=fact):
        check_reparam(form)
