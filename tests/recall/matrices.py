"""States to inputs by least squares, in single calls."""

from __future__ import annotations

from torch import Tensor

from memaudit.recall.linear import Decomposition, past_rows, real_rows


def reachability(reach: Tensor) -> Tensor:
    """V_k (…,n,k·D) of the states A^s B (…,k,N,D), the oldest input first.

    Real and imaginary parts stand below each other: inputs are real, so a complex state of N
    entries tells n = 2 N real numbers about them.
    """
    return past_rows(reach.flip(-3)).mT


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
