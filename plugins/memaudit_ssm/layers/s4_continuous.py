"""The weights of S4 in continuous time, and the bank of systems that they are in discrete time."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from memaudit.numerics.linear import Bank, System, discretize, eigenvalues_of
from memaudit_ssm.layers.s4_dplr import DplrBank, discretize_dplr, restore_readout


@dataclass(frozen=True, slots=True)
class LowRank:
    """The part -P Qᵀ of the state matrix: `left` is P, `right` is Q, both (R,H,N).

    The stored readout belongs to a kernel of `length` steps that repeats: C (I - A^length). With
    the length 0 it is C itself.
    """

    left: Tensor
    right: Tensor
    length: int


@dataclass(frozen=True, slots=True)
class Continuous:
    """x' = A x + B u, y = C x for every feature, one of each conjugate pair stored.

    `rates` (H,N) is the diagonal of A, `inputs` (H,N) is B, `readout` (C,H,N) is C, `steps` the
    step sizes (H,1) or (H,N). Real weights stand for themselves; S4 doubles their output too.
    """

    rates: Tensor
    steps: Tensor
    inputs: Tensor
    readout: Tensor
    low_rank: LowRank | None = None

    def read_by(self, readout: Tensor) -> Continuous:
        """The same system with another readout."""
        return replace(self, readout=readout)


def system_of(
    weights: Continuous, direct: Tensor | None, *, disc: str, checked: bool = True
) -> System:
    """The bank in discrete time; a low-rank part has dense matrices, by the bilinear rule.

    A readout that cannot be restored is refused when `checked`, and not finite otherwise.
    """
    if weights.low_rank is not None:
        return _dense(weights, weights.low_rank, direct, checked=checked)
    modes, gains = discretize(weights.rates, weights.steps, how=disc)
    # The other one of each pair doubles the real part; S4 doubles real modes all the same.
    return Bank(modes, gains * weights.inputs, 2.0 * weights.readout, direct)


def _dense(weights: Continuous, low: LowRank, direct: Tensor | None, *, checked: bool) -> DplrBank:
    kind, device = weights.rates.dtype, weights.rates.device
    matrix, inputs = discretize_dplr(
        _pairs(weights.rates),
        _wide(weights.steps).repeat(1, 2 if weights.steps.shape[1] > 1 else 1),
        _pairs(weights.inputs),
        left=_pairs(low.left),
        right=_pairs(low.right),
    )
    stored = _pairs(weights.readout)
    readout, condition = restore_readout(matrix, stored, low.length, checked=checked)
    # In double precision: the order is that of the matrix, not that of its rounding. Copies
    # that are only run need none.
    eigenvalues = eigenvalues_of(matrix).to(device, kind) if checked else None
    return DplrBank(
        *(part.to(device, kind) for part in (matrix, inputs, readout)),
        direct=direct,
        eigenvalues=eigenvalues,
        condition=condition,
    )


def tiled(copies: Tensor, width: int) -> Tensor:
    """(…,S,N) trained copies for all features, (…,H,N): feature h takes copy h mod S."""
    times = width // copies.shape[-2]
    return copies.repeat(*(1 for _ in copies.shape[:-2]), times, 1)


def band_limited(weights: Continuous, bandlimit: float | None) -> Continuous:
    """Modes read as silent whose frequency lies above half the limit, in cycles a step."""
    if bandlimit is None:
        return weights
    cycles = weights.steps * weights.rates.imag.abs() / (2.0 * torch.pi)
    heard = cycles < bandlimit / 2.0
    return weights.read_by(weights.readout * heard)


def _pairs(half: Tensor) -> Tensor:
    """Both of each conjugate pair, in the widest precision."""
    wide = _wide(half)
    return torch.cat([wide, wide.conj()], dim=-1)


def _wide(values: Tensor) -> Tensor:
    # Not every device has double precision.
    kind = torch.complex128 if values.is_complex() else torch.float64
    return values.cpu().to(kind)
