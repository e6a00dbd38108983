"""The rate is linear for fast modes, and the time scale is for slow ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from memaudit.reparam import AbstractReparam
from memaudit.reparams.checking import check_form

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Heavytail(AbstractReparam):
    """f(w) = -(1 + w) for w >= 0, else -1 / (1 - w), in continuous time.

    Reaches every rate, and its gradient scale is at most 1. The modulus is beta + beta² / 4, of
    the mode at w = beta / 2.
    """

    name: ClassVar[str] = "heavytail"
    summary: ClassVar[str] = "-(1 + w), or -1 / (1 - w) below zero, as in Mamba-3; every rate"
    times: ClassVar[tuple[str, ...]] = ("continuous",)
    stable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_form(self)

    def forward(self, w: Tensor) -> Tensor:
        # Each branch sees its own half only: the other one would divide by zero at w = 1.
        slow = -1.0 / (1.0 - w.clamp(max=0.0))
        return torch.where(w >= 0.0, -(1.0 + w), slow)

    def inverse(self, lam: Tensor) -> Tensor:
        return torch.where(lam <= -1.0, -lam - 1.0, 1.0 + 1.0 / lam)

    def contains(self, lam: Tensor) -> Tensor:
        return (lam < 0.0) & lam.isfinite()

    def modulus(self, beta: float) -> float:
        return beta + beta * beta / 4.0

    @property
    def scale_formula(self) -> str:
        return "1 / (1 + max(w, 0))²"

    def gradient_scale(self, w: Tensor) -> Tensor:
        return (1.0 + w.double().clamp(min=0.0)).pow(-2)
