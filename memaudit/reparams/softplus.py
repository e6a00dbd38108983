"""The rate is the softplus of the raw weight."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from memaudit.reparam import AbstractReparam
from memaudit.reparams.checking import check_form


@dataclass(frozen=True, slots=True)
class Softplus(AbstractReparam):
    """f(w) = -log(1 + e^w), in discrete time 1 / (1 + e^w).

    The modulus is e^beta - 1 in both, approached by ever slower modes.
    """

    name: ClassVar[str] = "softplus"
    summary: ClassVar[str] = "-log(1 + exp(w))"
    times: ClassVar[tuple[str, ...]] = ("continuous", "discrete")
    stable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_form(self)

    def forward(self, w: torch.Tensor) -> torch.Tensor:
        if self.time == "discrete":
            return torch.sigmoid(-w)
        # torch's softplus is w itself from 20 on, which is no rounding in float64.
        return -torch.logaddexp(w, torch.zeros_like(w))

    def inverse(self, lam: torch.Tensor) -> torch.Tensor:
        if self.time == "discrete":
            return -torch.logit(lam)
        # log(expm1(-lam)) without its overflow.
        return (-torch.expm1(lam)).log() - lam

    def contains(self, lam: torch.Tensor) -> torch.Tensor:
        if self.time == "continuous":
            return (lam < 0.0) & lam.isfinite()
        return (lam > 0.0) & (lam < 1.0)

    def modulus(self, beta: float) -> float:
        return math.expm1(beta)

    @property
    def scale_formula(self) -> str:
        return "s(w) / log(1 + e^w)², s = sigmoid" if self.time == "continuous" else "e^-w"

    def gradient_scale(self, w: torch.Tensor) -> torch.Tensor:
        if self.time == "discrete":
            return (-w.double()).exp()
        # Below, the scale is infinite in float64, and zero over zero at last.
        raw = w.double().clamp(min=-700.0)
        return raw.sigmoid() / torch.logaddexp(raw, torch.zeros_like(raw)).square()
