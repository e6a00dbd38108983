"""Predators and prey, driven by the input."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from memaudit.target import AbstractTarget
from memaudit.targets.naming import check_number

#: Birth and death of the prey, death and birth of the predators; where both begin.
A, B, C, D = 1.0, 0.6, 1.0, 0.3
BEGINNING = (1.0, 0.5)


@dataclass(frozen=True, slots=True)
class LotkaVolterra(AbstractTarget):
    """The states of dz1/dt = z1 (1 - 0.6 z2), dz2/dt = -z2 (1 - 0.3 z1) + u, in Euler steps.

    From z = (1, 0.5), as in App. E.3 of the paper on linear recurrences; y_t is the state after
    the input u_t was taken in.
    """

    name: ClassVar[str] = "lotka-volterra"
    summary: ClassVar[str] = (
        "predators and prey in Euler steps of `step`, as in lotka-volterra:0.0075"
    )
    outputs: ClassVar[int] = 2

    step: float = 0.0075

    def __post_init__(self) -> None:
        check_number(self, "step", low=0.0, high=math.inf)

    def answer(self, inputs: torch.Tensor) -> torch.Tensor:
        u = inputs[..., 0].to(torch.float64)
        prey, hunters = (torch.full_like(u[:, 0], start) for start in BEGINNING)
        states = []
        for now in u.unbind(1):
            grown = prey + self.step * prey * (A - B * hunters)
            hunters = hunters + self.step * (-hunters * (C - D * prey) + now)
            prey = grown
            states.append(torch.stack([prey, hunters], dim=-1))
        return torch.stack(states, dim=1)
