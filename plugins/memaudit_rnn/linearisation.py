"""A GRU near rest as a linear system: equation 142 of IATN."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor, nn

    from memaudit_rnn.cells import CellWeights


#: Shares of the candidate below this count as none.
SHUT = 1e-4


def gru_linearisation(weights: CellWeights, *, reset_first: bool = True) -> Tensor:
    """Diag(s(b_z)) (U_h Diag(s(b_r)) - I): the step minus the identity, linear at h = 0.

    s is the sigmoid. It holds for silence and candidate biases of zero: only then is h = 0 a fixed
    point. z is the share that is replaced; torch's z is the share that is kept, so its bias changes
    sign. The paper's cell resets the state before U_h multiplies it (`reset_first`), torch's
    after: that is Diag(s(b_z)) (Diag(s(b_r)) U_h - I), a similar matrix with the same eigenvalues.
    """
    size = weights.hidden
    candidate = weights.weight_hh[2 * size :]
    bias = candidate.new_zeros(3 * size)
    for part in (weights.bias_ih, weights.bias_hh):
        bias = bias if part is None else bias + part
    opened, replaced = bias[:size].sigmoid(), (-bias[size : 2 * size]).sigmoid()
    inner = candidate * opened if reset_first else opened[:, None] * candidate
    return replaced[:, None] * (inner - torch.eye(size, dtype=inner.dtype, device=inner.device))


def gru_matrix(owner: nn.Module, stored: Tensor, *, end: str) -> Tensor:
    """Diag(z) + Diag((1 - z) r) W_n: the same step with the identity, in torch's order.

    r and z are the gates of a layer of torch at its biases; z is the share that is kept. `stored`
    is its recurrent weight, with the rows of r, of z and of n; names of weights have that `end`.
    """
    candidate = stored[2 * stored.shape[-1] :]
    kept, added = _shares(owner, end, like=stored)
    return torch.diag(kept) + added[:, None] * candidate


def gru_rest(stored: Tensor) -> Tensor:
    """The rows of the two gates, which do not act at rest."""
    return stored[: 2 * stored.shape[-1]]


def gru_weight(owner: nn.Module, matrix: Tensor, rest: Tensor, *, end: str) -> Tensor:
    """The stored weight with that matrix as its step at rest: the inverse of the two above."""
    kept, added = _shares(owner, end, like=matrix)
    # A gate that training shuts must not make the weights behind it infinite.
    candidate = (matrix - torch.diag(kept)) / added[:, None].clamp(min=SHUT)
    return torch.cat([rest.to(candidate.dtype), candidate])


def least_share(owner: nn.Module, end: str) -> float:
    """The least share of the candidate that a unit takes at rest; nothing is divided by zero."""
    like = getattr(owner, f"weight_hh{end}").detach().double()
    return float(_shares(owner, end, like=like)[1].detach().min())


def _shares(owner: nn.Module, end: str, *, like: Tensor) -> tuple[Tensor, Tensor]:
    """The shares z and (1 - z) r at the biases of the layer now; 1/2 and 1/4 without biases."""
    size = like.shape[-1]
    bias = like.new_zeros(3 * size)
    for name in (f"bias_ih{end}", f"bias_hh{end}"):
        part = getattr(owner, name, None)
        bias = bias if part is None else bias + part.to(like.dtype)
    reset, keep = bias[:size], bias[size : 2 * size]
    return keep.sigmoid(), (-keep).sigmoid() * reset.sigmoid()
