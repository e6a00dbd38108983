"""Real and complex numbers where a system may have either."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def real_part(values: Tensor) -> Tensor:
    """The real part of complex numbers; real ones as they are."""
    return values.real if values.is_complex() else values


def as_complex(values: Tensor) -> Tensor:
    """The same numbers, complex, in their precision."""
    return values.to(torch.promote_types(values.dtype, torch.complex64))


def in_double(values: Tensor) -> Tensor:
    """The same numbers, real or complex, in double precision."""
    return values.to(torch.promote_types(values.dtype, torch.float64))


def eigenvalues_of(
    matrix: Tensor, solve: Callable[[Tensor], Tensor] = torch.linalg.eigvals
) -> Tensor:
    """The eigenvalues (…,N) of matrices (…,N,N), NaN where one is not finite.

    The solvers for matrices do not return from what is not finite on every machine.
    """
    finite = matrix.isfinite().flatten(-2).all(-1, keepdim=True)
    return torch.where(finite, solve(torch.where(finite.unsqueeze(-1), matrix, 0.0)), torch.nan)
