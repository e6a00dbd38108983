"""The time scale is the raw weight."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from memaudit.numerics.reparameterization import modulus
from memaudit.reparam import AbstractReparam
from memaudit.reparams.checking import check_form

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Inverse(AbstractReparam):
    """f(w) = -1 / max(w, floor), in discrete time 1 - 1 / max(w, floor).

    IATN, Table 1 names it and gives no formula; this is that of the authors' public code, whose
    floor keeps the discrete eigenvalue above -1. A weight below it has no gradient. In continuous
    time g(beta) = beta / floor.
    """

    name: ClassVar[str] = "inverse"
    summary: ClassVar[str] = "-1 / w; fast modes are cut off, and have no gradient"
    times: ClassVar[tuple[str, ...]] = ("continuous", "discrete")
    stable: ClassVar[bool] = True

    floor: float = 0.5 + 1e-7

    def __post_init__(self) -> None:
        # At one half the discrete eigenvalue is -1.
        check_form(self, floor=(0.0 if self.time == "continuous" else 0.5, math.inf))

    def forward(self, w: torch.Tensor) -> torch.Tensor:
        rate = -1.0 / w.clamp(min=self.floor)
        return rate if self.time == "continuous" else 1.0 + rate

    def inverse(self, lam: torch.Tensor) -> torch.Tensor:
        return -1.0 / lam if self.time == "continuous" else 1.0 / (1.0 - lam)

    def contains(self, lam: torch.Tensor) -> torch.Tensor:
        end = 0.0 if self.time == "continuous" else 1.0
        return (lam < end) & (lam.double() >= end - 1.0 / self.floor)

    def modulus(self, beta: float) -> float:
        if self.time == "continuous":
            return beta / self.floor
        return modulus(self.forward, beta, time=self.time)

    @property
    def scale_formula(self) -> str:
        return f"1 from w = {self.floor:.3g} on, else 0"

    def gradient_scale(self, w: torch.Tensor) -> torch.Tensor:
        return (w.double() >= self.floor).double()
