"""The discrete eigenvalue is the hyperbolic tangent of the raw weight."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from memaudit.reparam import AbstractReparam
from memaudit.reparams.checking import check_form

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Tanh(AbstractReparam):
    """f(w) = tanh(w) in discrete time; modulus e^{2 beta} - 1, approached by ever slower modes."""

    name: ClassVar[str] = "tanh"
    summary: ClassVar[str] = "tanh(w), for eigenvalues of both signs"
    times: ClassVar[tuple[str, ...]] = ("discrete",)
    stable: ClassVar[bool] = True

    time: str = "discrete"

    def __post_init__(self) -> None:
        check_form(self)

    def forward(self, w: torch.Tensor) -> torch.Tensor:
        return w.tanh()

    def inverse(self, lam: torch.Tensor) -> torch.Tensor:
        return lam.atanh()

    def contains(self, lam: torch.Tensor) -> torch.Tensor:
        return (lam > -1.0) & (lam < 1.0)

    def modulus(self, beta: float) -> float:
        return math.expm1(2.0 * beta)

    @property
    def scale_formula(self) -> str:
        return "e^2w"

    def gradient_scale(self, w: torch.Tensor) -> torch.Tensor:
        return (2.0 * w.double()).exp()
