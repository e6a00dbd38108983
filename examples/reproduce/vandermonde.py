"""Eigenvalues of diagonal recurrences, and the Vandermonde matrices V from inputs to their states.

With A diagonal and B of ones V_k = [A^(k-1) B, …, A B, B] is a Vandermonde matrix.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from memaudit.numerics.linear import powers
from memaudit.recall.linear import Decomposition


def ring(
    count: int, *, radii: tuple[float, float] = (0.0, 1.0), generator: torch.Generator
) -> Tensor:
    """Random eigenvalues (count,) that are uniform on the ring between two radii.

        lam = exp(-nu + i·theta),  nu = -log(u1 (r_max² - r_min²) + r_min²) / 2,  theta = 2 pi u2

    with u1, u2 uniform on [0, 1) (Linear recurrences, Lemma 6).
    """
    low, high = radii
    if not 0 <= low <= high:
        raise ValueError(f"a ring lies between radii 0 <= low <= high, not {low:g} and {high:g}")
    draws = torch.rand(2, count, generator=generator, dtype=torch.float64)
    radius = (draws[0] * (high**2 - low**2) + low**2).sqrt()
    return torch.polar(radius, math.tau * draws[1])


def roots_of_unity(count: int, *, radius: float = 1.0) -> Tensor:
    """radius·exp(2 pi i j / count) for j = 1 … count: with radius 1, cond(V_count) is 1."""
    phases = math.tau * torch.arange(1, count + 1, dtype=torch.float64) / count
    return torch.polar(torch.full_like(phases, radius), phases)


def vandermonde(modes: Tensor, length: int, *, inputs: Tensor | None = None) -> Tensor:
    """V_k (N,k) of eigenvalues (N,): x_k = V_k u_{1:k}, columns modes^(k-1) … modes^0.

    The oldest input comes first. `inputs` (N,) are the entries of B, ones when there are none.
    """
    wide = modes.to(torch.promote_types(modes.dtype, torch.float64))
    found = powers(wide, length).flip(-1)
    return found if inputs is None else inputs.unsqueeze(-1) * found


def condition(matrix: Tensor) -> float:
    """s_max / s_min over the columns of one matrix, complex as it is given.

    Infinite when the columns cannot be told apart in float64: s_min <= max(n,m)·eps·s_max, or
    more columns than rows.
    """
    wide = matrix.to(torch.promote_types(matrix.dtype, torch.float64))
    return float(Decomposition(*torch.linalg.svd(wide, full_matrices=False)).condition())
