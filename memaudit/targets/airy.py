"""A memory that oscillates around a delay and is over soon after it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from memaudit.target import AbstractKernelTarget
from memaudit.targets.naming import check_number


@dataclass(frozen=True, slots=True)
class Airy(AbstractKernelTarget):
    """rho(t) = Ai(step (t - delay)) with the Airy function Ai of the first kind.

    Up to the delay it oscillates, beyond it falls like exp(-2/3 (step (t - delay))^(3/2)), faster
    than every exponential: what matters happened about `delay` steps ago.
    """

    name: ClassVar[str] = "airy"
    summary: ClassVar[str] = "rho(t) = Ai(step (t - delay)), as in airy:20,0.25"

    delay: float = 20.0
    step: float = 0.25

    def __post_init__(self) -> None:
        check_number(self, "delay", low=-math.inf, high=math.inf)
        check_number(self, "step", low=0.0, high=math.inf)

    def kernel(self, steps: int) -> torch.Tensor:
        t = torch.arange(steps, dtype=torch.float64)
        return torch.special.airy_ai(self.step * (t - self.delay))
