"""The raw weight is the eigenvalue."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from memaudit.reparam import AbstractReparam
from memaudit.reparams.checking import check_form

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Direct(AbstractReparam):
    """f(w) = w in both times: nothing keeps a mode from the boundary, and nothing behind it."""

    name: ClassVar[str] = "direct"
    summary: ClassVar[str] = "w itself; not stable"
    times: ClassVar[tuple[str, ...]] = ("continuous", "discrete")
    stable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_form(self)

    def forward(self, w: torch.Tensor) -> torch.Tensor:
        return w

    def inverse(self, lam: torch.Tensor) -> torch.Tensor:
        return lam

    def contains(self, lam: torch.Tensor) -> torch.Tensor:
        return lam.isfinite()

    def modulus(self, beta: float) -> float:
        del beta
        return math.inf

    @property
    def scale_formula(self) -> str:
        return "1 / w²" if self.time == "continuous" else "1 / (1 - w)²"

    def gradient_scale(self, w: torch.Tensor) -> torch.Tensor:
        away = w.double() if self.time == "continuous" else 1.0 - w.double()
        return away.pow(-2)
