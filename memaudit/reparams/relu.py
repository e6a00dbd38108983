"""The rate is what is positive of the raw weight."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from memaudit.reparam import AbstractReparam
from memaudit.reparams.checking import check_form

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Relu(AbstractReparam):
    """f(w) = -max(w, 0), in discrete time e^{-max(w, 0)}.

    Every w <= 0 is a mode on the boundary, which no gradient moves away from it.
    """

    name: ClassVar[str] = "relu"
    summary: ClassVar[str] = "-max(w, 0); reaches the boundary, not stable"
    times: ClassVar[tuple[str, ...]] = ("continuous", "discrete")
    stable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_form(self)

    def forward(self, w: torch.Tensor) -> torch.Tensor:
        rate = -w.relu()
        return rate if self.time == "continuous" else rate.exp()

    def inverse(self, lam: torch.Tensor) -> torch.Tensor:
        return -lam if self.time == "continuous" else -lam.log()

    def contains(self, lam: torch.Tensor) -> torch.Tensor:
        if self.time == "continuous":
            return (lam <= 0.0) & lam.isfinite()
        return (lam > 0.0) & (lam <= 1.0)

    def modulus(self, beta: float) -> float:
        del beta
        return math.inf
