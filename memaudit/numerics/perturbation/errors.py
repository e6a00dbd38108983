"""How large the difference of two answers is."""

from __future__ import annotations

import torch

from memaudit.errors import ArgumentError, nearest

#: The norm of the papers, the same without the derivative, the sum over time, the mean square.
NORMS = ("sobolev", "sup", "l1", "mse")


def error_norm(difference: torch.Tensor, norm: str, *, pooled: bool) -> torch.Tensor:
    """The errors (K,) of differences d (K,B,T,M), or (K,B,M) of pooled answers, in float64.

    With |.|_inf over the outputs, d(-1) = 0, and the largest over the rows B:

    sobolev: sup_t |d(t)|_inf + |d(t) - d(t-1)|_inf; sup: sup_t |d(t)|_inf; l1: sum_t |d(t)|_inf.

    mse is the mean of all squares. A pooled answer has no derivative. What is not finite is
    infinite; elsewhere the error can be differentiated.
    """
    if norm not in NORMS:
        raise ArgumentError(f"there is no norm {norm!r}", hint=nearest(norm, NORMS))
    d = difference.double()
    d = d.unsqueeze(2) if pooled else d
    if norm == "mse":
        found = d.square().flatten(1).mean(1)
    else:
        sizes = _largest(d)
        if norm == "sobolev" and not pooled:
            sizes = sizes + torch.cat([sizes[:, :, :1], _largest(d.diff(dim=2))], 2)
        found = (sizes.sum(2) if norm == "l1" else sizes.amax(2)).amax(1)
    return torch.where(torch.isfinite(found), found, torch.inf)


def _largest(d: torch.Tensor) -> torch.Tensor:
    """|d|_inf over the outputs: (K,B,T) of (K,B,T,M)."""
    return d.flatten(3).abs().amax(3)
