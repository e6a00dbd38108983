"""A memory of one moment: the input of some steps ago."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from memaudit.errors import ArgumentError
from memaudit.target import AbstractKernelTarget
from memaudit.targets.naming import check_number

#: Steps are counted in 64 bits.
LONGEST = 2.0**53


@dataclass(frozen=True, slots=True)
class Shift(AbstractKernelTarget):
    """y_t = x_{t - lag}, zero before that."""

    name: ClassVar[str] = "shift"
    summary: ClassVar[str] = "y_t = x_{t - lag}, as in shift:10"

    lag: float = 10.0

    def __post_init__(self) -> None:
        check_number(self, "lag", low=-1.0, high=LONGEST)
        if self.lag != int(self.lag):
            fact = f"the target shift has no number that fits: lag is {self.lag:g}"
            raise ArgumentError(fact, hint="take whole steps")

    def kernel(self, steps: int) -> torch.Tensor:
        return (torch.arange(steps) == int(self.lag)).double()
