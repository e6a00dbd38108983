"""A memory that decays exponentially."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from memaudit.target import AbstractKernelTarget
from memaudit.targets.naming import check_number


@dataclass(frozen=True, slots=True)
class Exp(AbstractKernelTarget):
    """rho(t) = base^t."""

    name: ClassVar[str] = "exp"
    summary: ClassVar[str] = "rho(t) = base^t, as in exp:0.9"

    base: float = 0.9

    def __post_init__(self) -> None:
        check_number(self, "base", low=-1.0, high=1.0)

    def kernel(self, steps: int) -> torch.Tensor:
        return self.base ** torch.arange(steps, dtype=torch.float64)
