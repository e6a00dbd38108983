"""The raw weight is the rate, cut off short of the boundary."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from memaudit.reparam import AbstractReparam
from memaudit.reparams.checking import check_form

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Clip(AbstractReparam):
    """f(w) = min(w, ceiling) in continuous time, with a ceiling below zero.

    A weight beyond the ceiling has no gradient and stays there. The modulus is finite, but large:

        g(beta) = beta / |ceiling|,

    reached by a mode that moves from ceiling - beta up to the ceiling.
    """

    name: ClassVar[str] = "clip"
    summary: ClassVar[str] = "min(w, -1e-4), as S5 does it; no gradient beyond the ceiling"
    times: ClassVar[tuple[str, ...]] = ("continuous",)
    stable: ClassVar[bool] = True

    ceiling: float = -1e-4

    def __post_init__(self) -> None:
        check_form(self, ceiling=(-math.inf, 0.0))

    def forward(self, w: torch.Tensor) -> torch.Tensor:
        return w.clamp(max=self.ceiling)

    def inverse(self, lam: torch.Tensor) -> torch.Tensor:
        return lam

    def contains(self, lam: torch.Tensor) -> torch.Tensor:
        return (lam.double() <= self.ceiling) & lam.isfinite()

    def modulus(self, beta: float) -> float:
        return beta / -self.ceiling

    @property
    def scale_formula(self) -> str:
        return f"1 / w² up to w = {self.ceiling:.3g}, else 0"

    def gradient_scale(self, w: torch.Tensor) -> torch.Tensor:
        raw = w.double()
        return raw.clamp(max=self.ceiling).pow(-2) * (raw <= self.ceiling)
