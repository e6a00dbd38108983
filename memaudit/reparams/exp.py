"""The rate is the exponential of the raw weight."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from memaudit.reparam import AbstractReparam
from memaudit.reparams.checking import check_form

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Exp(AbstractReparam):
    """f(w) = -e^w, in discrete time e^{-e^w}; the modulus is e^beta - 1 in both."""

    name: ClassVar[str] = "exp"
    summary: ClassVar[str] = "-exp(w), as in Mamba, S4 and LRU"
    times: ClassVar[tuple[str, ...]] = ("continuous", "discrete")
    stable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_form(self)

    def forward(self, w: torch.Tensor) -> torch.Tensor:
        rate = -w.exp()
        return rate if self.time == "continuous" else rate.exp()

    def inverse(self, lam: torch.Tensor) -> torch.Tensor:
        return (-lam).log() if self.time == "continuous" else (-lam.log()).log()

    def contains(self, lam: torch.Tensor) -> torch.Tensor:
        if self.time == "continuous":
            return (lam < 0.0) & lam.isfinite()
        return (lam > 0.0) & (lam < 1.0)

    def modulus(self, beta: float) -> float:
        return math.expm1(beta)

    @property
    def scale_formula(self) -> str:
        return "e^-w" if self.time == "continuous" else "r / (2 sinh(r/2))², r = e^w"

    def gradient_scale(self, w: torch.Tensor) -> torch.Tensor:
        if self.time == "continuous":
            return (-w.double()).exp()
        # Outside of these weights the scale is zero or infinite; rates there would be so, too.
        rate = w.double().clamp(-700.0, 50.0).exp()
        return rate * (2.0 * (rate / 2.0).sinh()).pow(-2)
