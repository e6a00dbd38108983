"""Small models with one recurrent weight each, and what is known about it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from memaudit.interfaces import DenseDecay, DiagonalDecay
from memaudit.numerics.signals import seeded
from memaudit.reparams import Exp


class Rates(nn.Module):
    """y = sum of e^{-e^A_log} weighted: a weight between two others, to see that order is kept."""

    def __init__(self, *, dtype: torch.dtype = torch.float32, seed: int = 0) -> None:
        super().__init__()
        generator = seeded(seed)
        self.first = nn.Parameter(torch.ones(2, dtype=dtype))
        drawn = torch.randn(4, 3, generator=generator, dtype=torch.float64)
        self.A_log = nn.Parameter(drawn.to(dtype))
        self.last = nn.Parameter(torch.ones(2, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        return (x * torch.exp(-self.A_log.exp())).sum(-1)


def rates(model: Rates) -> DiagonalDecay:
    return DiagonalDecay(model, "A_log", Exp(), layer="rates", cell="mamba1")


def recurrent(size: int = 6, *, radius: float = 0.9, dtype=torch.float32, seed: int = 0) -> nn.RNN:
    """A tanh RNN whose matrix has that spectral radius."""
    model = nn.RNN(3, size, batch_first=True, dtype=dtype)
    generator = seeded(seed)
    with torch.no_grad():
        for weight in model.parameters():
            drawn = torch.rand(weight.shape, generator=generator, dtype=torch.float64) - 0.5
            weight.copy_(drawn)
        matrix = model.weight_hh_l0
        matrix.mul_(radius / torch.linalg.eigvals(matrix.double()).abs().max())
    return model


def whole(model: nn.RNN) -> DenseDecay:
    return DenseDecay(
        model,
        "weight_hh_l0",
        matrix=lambda owner, stored: stored,
        rest=lambda stored: stored.new_empty(0),
        joined=lambda owner, matrix, rest: matrix,
        layer="l0",
        cell="RNN",
    )
