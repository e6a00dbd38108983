"""A memory that decays as a power of time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from memaudit.target import AbstractKernelTarget
from memaudit.targets.naming import check_number


@dataclass(frozen=True, slots=True)
class Poly(AbstractKernelTarget):
    """rho(t) = step (step·t + 1)^-power: (s + 1)^-power in steps of the continuous time s."""

    name: ClassVar[str] = "poly"
    summary: ClassVar[str] = "rho(t) = step (step t + 1)^-power, as in poly:1.1"

    power: float = 1.1
    step: float = 1.0

    def __post_init__(self) -> None:
        check_number(self, "power", low=0.0, high=math.nextafter(100.0, math.inf))
        check_number(self, "step", low=0.0, high=math.inf)

    def kernel(self, steps: int) -> torch.Tensor:
        t = self.step * torch.arange(steps, dtype=torch.float64)
        return self.step * (t + 1.0) ** -self.power
