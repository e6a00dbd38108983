"""A nonlinear memory: a Volterra series of order two."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from memaudit.target import AbstractTarget
from memaudit.targets.exp import Exp
from memaudit.targets.naming import check_number


@dataclass(frozen=True, slots=True)
class Volterra(AbstractTarget):
    """y_t = sum_s first^s x_{t-s} + gain sum_{r,s} second^{r+s} x_{t-r} x_{t-s}."""

    name: ClassVar[str] = "volterra"
    summary: ClassVar[str] = (
        "order two: kernels first^s and gain second^{r+s}, as in volterra:0.9,0.8"
    )

    first: float = 0.9
    second: float = 0.8
    gain: float = 1.0

    def __post_init__(self) -> None:
        check_number(self, "first", low=-1.0, high=1.0)
        check_number(self, "second", low=-1.0, high=1.0)
        check_number(self, "gain", low=-math.inf, high=math.inf)

    def answer(self, inputs: torch.Tensor) -> torch.Tensor:
        # The kernel of order two is a product, so its double sum is the square of one sum.
        square = Exp(self.second).answer(inputs).square()
        return Exp(self.first).answer(inputs) + self.gain * square
