"""The rate is what is positive of the raw weight."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from memaudit.reparam import AbstractReparam
from memaudit.reparams.checking import check_form


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

    @property
    def scale_formula(self) -> str:
        return "1 / w², 0 below" if self.time == "continuous" else "1 / (2 sinh(w/2))², 0 below"

    def gradient_scale(self, w: torch.Tensor) -> torch.Tensor:
        raw = w.double()
        away = raw if self.time == "continuous" else 2.0 * (raw / 2.0).sinh()
        # Where there is no gradient there is no scale, however near the boundary.
        return torch.where(raw > 0.0, away.pow(-2), torch.zeros_like(raw))
