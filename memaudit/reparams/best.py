"""The reparameterization whose gradient scale is proportional to the raw weight."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

from memaudit.numerics.reparameterization import modulus
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

    @property
    def scale_formula(self) -> str:
        return "2a|w|"

    def gradient_scale(self, w: torch.Tensor) -> torch.Tensor:
        return 2.0 * self.a * w.double().abs()

    def fitted(self, lam: torch.Tensor) -> Self:
        """The b comes from the fastest mode, clear of w = 0; a = 2b, as in the paper.

        The modulus depends on b/a alone. In continuous time b is half of the shortest time scale;
        in discrete time halfway from one half, where w = 0 is on the boundary, to the end.
        """
        away = -lam if self.time == "continuous" else 1.0 - lam
        away = away[(away > 0.0) & away.isfinite()].double()
        if not away.numel():
            return self
        end = float(1.0 / away.amax())
        if self.time == "discrete" and end <= 0.5:
            return self
        b = end / 2.0 if self.time == "continuous" else (0.5 + end) / 2.0
        b = float(f"{b:.4g}")  # few digits: they are told, and typed again
        return replace(self, a=2.0 * b, b=b)
