"""Powers of eigenvalues and matrices over a range of exponents, in few products."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor


def powers(values: Tensor, count: int) -> Tensor:
    """values^0 … values^(count-1) on a new last axis; 0^0 is 1."""
    found = torch.ones_like(values).unsqueeze(-1)
    factor = values.unsqueeze(-1)  # values^(length of found)
    while found.shape[-1] < count:
        found = torch.cat([found, found * factor], dim=-1)
        factor = factor * factor
    return found[..., :count]


def power(values: Tensor, exponent: int) -> Tensor:
    """values^exponent by squaring."""
    found, factor = torch.ones_like(values), values
    while exponent:
        if exponent & 1:
            found = found * factor
        factor, exponent = factor * factor, exponent >> 1
    return found


def krylov(matrix: Tensor, vector: Tensor, count: int) -> Tensor:
    """(…,N,count): the columns matrix^0·vector … matrix^(count-1)·vector."""
    columns = vector.unsqueeze(-1)
    factor = matrix
    while columns.shape[-1] < count:
        columns = torch.cat([columns, factor @ columns], dim=-1)
        if columns.shape[-1] < count:
            factor = factor @ factor
    return columns[..., :count]


def giant_steps(start: int, stop: int) -> Iterator[tuple[int, int]]:
    """The range cut into about as many pieces as each is long: (first exponent, length)."""
    size = max(1, math.isqrt(stop - start))
    for at in range(start, stop, size):
        yield at, min(size, stop - at)
