"""How past inputs stand in the state of a linear recurrence."""

from __future__ import annotations

import torch
from torch import Tensor

from memaudit.numerics.linear.powers import powers


def vandermonde(modes: Tensor, length: int, *, inputs: Tensor | None = None) -> Tensor:
    """V_k (N,k) of eigenvalues (N,): x_k = V_k u_{1:k}, columns modes^(k-1) … modes^0.

    The oldest input comes first. `inputs` (N,) are the entries of B, ones when there are none.
    """
    wide = modes.to(torch.promote_types(modes.dtype, torch.float64))
    found = powers(wide, length).flip(-1)
    return found if inputs is None else inputs.unsqueeze(-1) * found


def reachability(reach: Tensor) -> Tensor:
    """V_k (…,n,k·D) of the states A^s B (…,k,N,D), the oldest input first.

    Real and imaginary parts stand below each other: inputs are real, so a complex state of N
    entries tells n = 2 N real numbers about them.
    """
    return past_rows(reach.flip(-3)).mT


def past_rows(reach: Tensor) -> Tensor:
    """The rows (…,k·D,n) that past inputs have in the state, the newest first, in float64."""
    parts = torch.cat([reach.real, reach.imag], dim=-2) if reach.is_complex() else reach
    return parts.double().mT.flatten(-3, -2)


def numbers_of(reach: Tensor) -> int:
    """Real numbers n in the state."""
    return reach.shape[-2] * (2 if reach.is_complex() else 1)
