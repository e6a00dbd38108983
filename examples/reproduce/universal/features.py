"""Functions of one variable as sums of tanh: by construction, and by least squares."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Function = Callable[[Tensor], Tensor]

#: tanh is 1 within 2e-9 one cell beyond its own.
STEEP = 10.0
#: Share of the largest singular value below which a direction of the features is noise.
THIN = 1e-13
#: Fitted steps on either side of the interval: at the ends f needs neighbours, too.
BEYOND = 3


def centres(count: int, low: float, high: float) -> tuple[Tensor, float]:
    """The middles of `count` - 1 cells with one centre below them all, and the width of a cell."""
    cell = (high - low) / (count - 1)
    at = low + cell * (torch.arange(count, dtype=torch.float64) - 0.5)
    return at, cell


def staircase(f: Function, count: int, low: float, high: float) -> tuple[Tensor, Tensor, Tensor]:
    """Slopes, shifts and weights of a smooth staircase through f at the ends of the cells.

    The first step stands below the interval and carries half of the constant that tanh, which
    runs from -1 to 1, needs; every other step rises by what f rises over its cell. Between the
    ends the sum stays within 2 w(cell) of f, with w the modulus of continuity of f.
    """
    at, cell = centres(count, low, high)
    ends = f(low + cell * torch.arange(count, dtype=torch.float64))
    weights = torch.cat([(ends[:1] + ends[-1:]) / 2, ends.diff() / 2])
    slopes = torch.full_like(at, 2 * STEEP / cell)
    return slopes, -slopes * at, weights


def fitted(f: Function, count: int, low: float, high: float) -> tuple[Tensor, Tensor, Tensor]:
    """Steps as smooth as their distance, also beyond both ends; the weights of least squares."""
    cell = (high - low) / (count - 1 - 2 * BEYOND)
    at = low + cell * (torch.arange(count, dtype=torch.float64) - BEYOND)
    slopes = torch.full_like(at, 1.0 / cell)
    shifts = -slopes * at
    x = torch.linspace(low, high, 4 * count + 1, dtype=torch.float64)
    table = torch.tanh(x[:, None] * slopes + shifts)
    weights = torch.linalg.lstsq(table, f(x)[:, None], rcond=THIN, driver="gelsd").solution[:, 0]
    return slopes, shifts, weights


def modulus(f: Function, width: float, low: float, high: float) -> float:
    """w(width), the largest change of f over that distance, found on a grid."""
    x = torch.linspace(low, high, 20_001, dtype=torch.float64)
    span = max(1, round(width / float(x[1] - x[0])))
    values = f(x).unfold(0, span + 1, 1)
    return float((values.amax(1) - values.amin(1)).max())


def exponentials(kernels: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Modes (m,) and coefficients (K,m) with which sums of exponentials meet kernels (K,T)."""
    angles = (2 * torch.arange(size, dtype=torch.float64) + 1) * torch.pi / (2 * size)
    modes = (1 + torch.cos(angles)) / 2
    table = modes ** torch.arange(kernels.shape[1], dtype=torch.float64)[:, None]
    return modes, torch.linalg.lstsq(table, kernels.mT, driver="gelsd").solution.mT
