"""The reparameterization whose gradient scale is proportional to the raw weight."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from memaudit.numerics.modulus import modulus
from memaudit.reparam import AbstractReparam
from memaudit.reparams.checking import check_form

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Best(AbstractReparam):
    """f(w) = -1 / (a w² + b), in discrete time 1 - 1 / (a w² + b).

    Reaches rates of at most 1/b; at w = 0 it stands at that end without a gradient. In discrete
    time with b = 0.5 that end is exactly -1, which is on the boundary: there the modulus is
    infinite, and a larger b is the remedy. In continuous time

        g(beta) = beta / w*,  w* = (sqrt(beta² + 4 b/a) - beta) / 2,

    where w* is the raw weight of the mode that suffers most.
    """

    name: ClassVar[str] = "best"
    summary: ClassVar[str] = "-1 / (a w² + b), the balanced one of StableSSM; rates up to 1/b"
    times: ClassVar[tuple[str, ...]] = ("continuous", "discrete")
    stable: ClassVar[bool] = True

    a: float = 1.0
    b: float = 0.5

    def __post_init__(self) -> None:
        check_form(self, a=(0.0, math.inf), b=(0.0, math.inf))

    def forward(self, w: torch.Tensor) -> torch.Tensor:
        rate = -1.0 / (self.a * w.square() + self.b)
        return rate if self.time == "continuous" else 1.0 + rate

    def inverse(self, lam: torch.Tensor) -> torch.Tensor:
        away = -lam if self.time == "continuous" else 1.0 - lam
        # Rounding at the end of the range must not take the root of less than nothing.
        return ((1.0 / away - self.b).clamp(min=0.0) / self.a).sqrt()

    def contains(self, lam: torch.Tensor) -> torch.Tensor:
        end = 0.0 if self.time == "continuous" else 1.0
        return (lam < end) & (lam.double() >= end - 1.0 / self.b)

    def modulus(self, beta: float) -> float:
        if self.time == "discrete":
            return modulus(self.forward, beta, time=self.time)
        # 1 / w* with the difference under the bar multiplied out: small betas keep their digits.
        root = math.hypot(beta, 2.0 * math.sqrt(self.b / self.a))
        return beta * (root + beta) * self.a / (2.0 * self.b)
