"""Recurrences with known spectra."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch

from memaudit.interfaces import AbstractDynamics, StateBlock
from memaudit.numerics.signals import seeded

Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Map(AbstractDynamics):
    """A state that a function maps; one block unless more are given."""

    def __init__(
        self,
        step: Step,
        first: torch.Tensor,
        *,
        width: int = 1,
        blocks: Mapping[str, StateBlock] | None = None,
        causal: bool = True,
    ) -> None:
        self.width, self.causal = width, causal
        self.blocks = blocks or {"cell": StateBlock(0, len(first), "map")}
        self._step, self._first = step, first

    def initial(self) -> torch.Tensor:
        return self._first

    def step(self, state: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        return self._step(state, u)


def number(value: float) -> torch.Tensor:
    return torch.tensor([value], dtype=torch.float64)


def linear(matrix: torch.Tensor, *, first: torch.Tensor | None = None) -> Map:
    """s' = A s + u, with u added to every number."""
    size = len(matrix)
    start = torch.zeros(size, dtype=torch.float64) if first is None else first
    return Map(lambda s, u: s @ matrix.T.to(s) + u, start)


def rotation(modulus: float, angle: float) -> torch.Tensor:
    c, s = math.cos(angle), math.sin(angle)
    return modulus * torch.tensor([[c, -s], [s, c]], dtype=torch.float64)


def tanh_network(size: int, gain: float, *, seed: int = 0, first: float = 0.5) -> Map:
    """s' = tanh(W s + u), W Gaussian of spectral radius about `gain`."""
    generator = seeded(seed)
    weight = torch.randn(size, size, generator=generator, dtype=torch.float64)
    weight *= gain / math.sqrt(size)
    start = first * torch.randn(size, generator=generator, dtype=torch.float64)
    return Map(lambda s, u: torch.tanh(s @ weight.T + u), start)


def stack_of_two(matrix: torch.Tensor, over: torch.Tensor) -> Map:
    """Two layers, s1' = tanh(A s1 + u) and s2' = tanh(B s2 + s1' + 0.3)."""
    size = len(matrix)
    blocks = {
        "lower": StateBlock(0, size, "tanh"),
        "upper": StateBlock(size, 2 * size, "tanh", "exp"),
    }

    def step(s: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        lower = torch.tanh(s[:, :size] @ matrix.T + u)
        return torch.cat([lower, torch.tanh(s[:, size:] @ over.T + lower + 0.3)], 1)

    return Map(step, torch.zeros(2 * size, dtype=torch.float64), blocks=blocks)
