"""Kernels with the least arithmetic, for many small systems at once.

Nothing is written in place: a batch of copies can be run, and gradients flow.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from memaudit.numerics.linear.numbers import real_part


def bank_kernel(eigenvalues: Tensor, weights: Tensor, length: int) -> Tensor:
    """Re Σ_n weights (C,H,N) · eigenvalues (H,N)^l for l < length: (C,H,length)."""
    small, large = _tables(eigenvalues, length)
    found = torch.einsum("gchn,shn->chgs", large.unsqueeze(1) * weights, small)
    return real_part(found.flatten(2)[..., :length])


def modal_kernel(eigenvalues: Tensor, inputs: Tensor, readout: Tensor, length: int) -> Tensor:
    """Re readout (M,P) · eigenvalues (P,)^l · inputs (P,D) for l < length: (M,D,length)."""
    small, large = _tables(eigenvalues, length)
    late = readout * large.unsqueeze(1)  # (G,M,P)
    early = small.unsqueeze(2) * inputs  # (S,P,D)
    found = torch.einsum("gmp,spd->mdgs", late, early)
    return real_part(found.flatten(2)[..., :length])


def convolved(u: Tensor, kernel: Tensor) -> Tensor:
    """Every input u (B,T,D) with its kernels (M,D,T), summed over the inputs: (B,T,M)."""
    length = u.shape[1]
    size = 2 * length
    ahead = torch.fft.rfft(u, n=size, dim=1)
    found = torch.einsum("bfd,mdf->bfm", ahead, torch.fft.rfft(kernel, n=size))
    return torch.fft.irfft(found, n=size, dim=1)[:, :length]


def banked(u: Tensor, kernel: Tensor) -> Tensor:
    """Every input u (B,T,H) with its own kernels (C,H,T): (B,T,C,H)."""
    length = u.shape[1]
    size = 2 * length
    ahead = torch.fft.rfft(u.mT, n=size).unsqueeze(1)
    found = torch.fft.irfft(ahead * torch.fft.rfft(kernel, n=size), n=size)[..., :length]
    return found.permute(0, 3, 1, 2)


def _tables(values: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """The powers 0 … s-1, and those of s in steps of s, on a new first axis; s² >= length."""
    steps = max(1, math.isqrt(max(length, 1) - 1) + 1)
    small, stride = _run(values, steps)
    return small, _run(stride, -(-length // steps))[0]


def _run(factor: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """factor^0 … factor^(count-1), and factor^count, one product after the other."""
    now, found = torch.ones_like(factor), []
    for _ in range(count):
        found.append(now)
        now = now * factor
    return torch.stack(found), now
