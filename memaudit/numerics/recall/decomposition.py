"""The map from past inputs to a state, taken apart once and asked many things."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Decomposition:
    """V = U diag(s) Wᵀ of real matrices (…,n,m): `left` U, `values` s, `right` Wᵀ.

    A singular value below rtol·s_max is taken for 0; rtol is at least max(n,m)·eps.
    """

    left: Tensor
    values: Tensor
    right: Tensor

    @classmethod
    def of(cls, matrix: Tensor) -> Decomposition:
        """Of matrices in float64, the real parts above the imaginary ones: inputs are real."""
        return cls(*torch.linalg.svd(real_rows(matrix), full_matrices=False))

    @classmethod
    def even(cls, matrix: Tensor) -> Decomposition:
        """Of matrices whose rows are scaled to norm 1: rounding is relative in every number."""
        return cls.of(unit_rows(matrix))

    def kept(self, rtol: float = 0.0) -> Tensor:
        """Which singular values are not taken for 0."""
        longest = max(self.left.shape[-2], self.right.shape[-1])
        least = max(rtol, longest * torch.finfo(self.values.dtype).eps)
        return (self.values > least * self.values[..., :1]) & (self.values > 0)

    def rank(self, rtol: float = 0.0) -> Tensor:
        """How many independent combinations of inputs are in the state."""
        return self.kept(rtol).sum(-1)

    def condition(self) -> Tensor:
        """s_max / s_min over the columns; infinite where they cannot be told apart."""
        full = self.rank() == self.right.shape[-1]
        least = torch.where(full, self.values[..., -1], 1.0)
        return torch.where(full, self.values[..., 0] / least, math.inf)

    def reconstruct(self, state: Tensor, rtol: float = 0.0) -> Tensor:
        """The least-squares inputs V^+ x (…,m,B) of real states x (…,n,B)."""
        kept = self.kept(rtol)
        inverse = torch.where(kept, 1.0 / torch.where(kept, self.values, 1.0), 0.0)
        return self.right.mT @ (inverse.unsqueeze(-1) * (self.left.mT @ state))

    def decodability(self, *, rounding: float = 0.0) -> Tensor:
        """R² (…,m) of each of the iid inputs, from a state that is rounded by eps = `rounding`.

            R²_j = v_jᵀ (V Vᵀ + sigma² I)^+ v_j,   sigma² = eps² trace(V Vᵀ) / (12 n)

        with v_j the columns of V: a number of mean size is off by up to eps/2 of it. Where rows
        differ in size take `even`, for every number is rounded by its own.
        """
        # Scaled before squaring, so that no size overflows.
        top = self.values[..., :1]
        squares = (self.values / torch.where(top > 0, top, 1.0)).square()
        # The numbers of the state, not the singular values, which may be fewer.
        mean = squares.sum(-1, keepdim=True) / self.left.shape[-2]
        noise = rounding**2 / 12 * mean
        kept = self.kept()
        share = torch.where(kept, squares / torch.where(kept, squares + noise, 1.0), 0.0)
        return (share.unsqueeze(-1) * self.right.square()).sum(-2)


def unit_rows(matrix: Tensor) -> Tensor:
    """The rows (…,n,m) of `real_rows`, each of norm 1; rows of zeros as they are."""
    rows = real_rows(matrix)
    # By the largest entry first: the squares of a norm must neither overflow nor vanish.
    for order in (math.inf, 2):
        size = torch.linalg.vector_norm(rows, order, dim=-1, keepdim=True)
        rows = rows / torch.where(size > 0, size, 1.0)
    return rows


def real_rows(values: Tensor) -> Tensor:
    """(…,n,m) in float64, the real parts above the imaginary ones."""
    parts = torch.cat([values.real, values.imag], dim=-2) if values.is_complex() else values
    return parts.double()
