"""A GRU near rest as a linear system: equation 142 of IATN."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from memaudit_rnn.cells import CellWeights


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
