"""Eigenvalues on a ring of the complex plane: uniformly at random, or at even distances."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def ring(
    count: int, *, radii: tuple[float, float] = (0.0, 1.0), generator: torch.Generator
) -> Tensor:
    """Random eigenvalues (count,) that are uniform on the ring between two radii.

        lam = exp(-nu + i·theta),  nu = -log(u1 (r_max² - r_min²) + r_min²) / 2,  theta = 2 pi u2

    with u1, u2 uniform on [0, 1) (Linear recurrences, Lemma 6).
    """
    low, high = _checked(radii)
    draws = torch.rand(2, count, generator=generator, dtype=torch.float64)
    radius = (draws[0] * (high**2 - low**2) + low**2).sqrt()
    return torch.polar(radius, math.tau * draws[1])


def roots_of_unity(count: int, *, radius: float = 1.0) -> Tensor:
    """radius·exp(2 pi i j / count) for j = 1 … count: with radius 1, cond(V_count) is 1."""
    phases = math.tau * torch.arange(1, count + 1, dtype=torch.float64) / count
    return torch.polar(torch.full_like(phases, radius), phases)


def _checked(radii: tuple[float, float]) -> tuple[float, float]:
    low, high = radii
    if not 0 <= low <= high:
        raise ValueError(f"a ring lies between radii 0 <= low <= high, not {low:g} and {high:g}")
    return low, high
