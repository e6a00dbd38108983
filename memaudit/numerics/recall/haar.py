"""Haar wavelets as a basis of inputs that have few components."""

from __future__ import annotations

import torch
from torch import Tensor


def haar_basis(length: int, count: int) -> Tensor:
    """The `count` coarsest Haar functions as orthonormal columns (length, count).

    The constant comes first, then the wavelets from coarse to fine. A wavelet on l + r steps is
    sqrt(r / (l (l + r))) on the first l of them and -sqrt(l / (r (l + r))) on the others; where a
    length is no power of two its halves differ by one step, and the basis stays orthonormal.
    """
    if not 0 < count <= length:
        raise ValueError(f"a basis of {length} steps has 1 to {length} functions, not {count}")
    basis = torch.zeros(length, count, dtype=torch.float64)
    basis[:, 0] = length**-0.5
    level, at = [(0, length)], 1
    while at < count:
        level = [part for ends in level for part in _halves(*ends)]
        pairs = [(a, b) for a, b in zip(level[::2], level[1::2], strict=True) if b[1] > b[0]]
        for (start, middle), (_, stop) in pairs[: count - at]:
            left, right = middle - start, stop - middle
            basis[start:middle, at] = (right / (left * (left + right))) ** 0.5
            basis[middle:stop, at] = -((left / (right * (left + right))) ** 0.5)
            at += 1
    return basis


def _halves(start: int, stop: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Both halves of a stretch; the second of a single step is empty."""
    middle = (start + stop + 1) // 2
    return (start, middle), (middle, stop)
