"""Past inputs from a state by least squares: how well, and how much of each is in it."""

from __future__ import annotations

import torch
from torch import Tensor

from memaudit.numerics.recall.decomposition import Decomposition, real_rows


def condition(matrix: Tensor) -> float:
    """s_max / s_min over the columns of one matrix, complex as it is given.

    Infinite when the columns cannot be told apart in float64: s_min <= max(n,m)·eps·s_max, or
    more columns than rows.
    """
    wide = matrix.to(torch.promote_types(matrix.dtype, torch.float64))
    return float(Decomposition(*torch.linalg.svd(wide, full_matrices=False)).condition())


def reconstruct(state: Tensor, matrix: Tensor, *, rtol: float = 0.0) -> Tensor:
    """The least-squares inputs V^+ x (…,m,B) of states x (…,n,B), for a matrix V (…,n,m).

    Real and imaginary parts of complex states and matrices are taken apart, for inputs are real.
    Singular values below `rtol` times the largest are not used, nor those below max(n,m)·eps.
    """
    return Decomposition.of(matrix).reconstruct(real_rows(state), rtol)


def decodability(matrix: Tensor, *, rounding: float = 0.0) -> Tensor:
    """R² (…,m) of each of the m iid inputs from x = V u, exactly, for V (…,n,m).

        R²_j = v_jᵀ (V Vᵀ)^+ v_j

    with v_j the columns of V. The sum over all inputs, the memory capacity, is the rank of V.
    `rounding` is the eps with which every number of the state is stored, relative to its own size,
    see `Decomposition.decodability`.
    """
    return Decomposition.even(matrix).decodability(rounding=rounding)


def rounded(state: Tensor, dtype: torch.dtype) -> Tensor:
    """A state as a dtype stores it, in float64 again, real parts above imaginary ones."""
    return real_rows(state).to(dtype).double()
