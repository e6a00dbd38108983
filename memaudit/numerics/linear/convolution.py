"""Causal convolution of sequences with kernels, by FFT."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

#: Numbers in one block of a transform: enough for its speed, and bounded beside the activations.
BUDGET = 2**24


def convolve(u: Tensor, kernel: Tensor) -> Tensor:
    """Each of the sequences u (B,T,H) with its own kernels (C,H,T): (B,T,C,H)."""
    batch, length, width = u.shape
    out = u.new_empty(batch, length, *kernel.shape[:2])
    size = transform_length(length)
    for part in _blocks(width, batch * size * (1 + len(kernel))):
        inputs = torch.fft.rfft(u[..., part].transpose(1, 2), n=size)
        spectra = torch.fft.rfft(kernel[:, part, :length], n=size)
        for c, spectrum in enumerate(spectra):
            found = torch.fft.irfft(inputs * spectrum, n=size)[..., :length]
            out[:, :, c, part] = found.transpose(1, 2)
    return out


def accumulate(v: Tensor, modes: Tensor, powers: Tensor) -> Tensor:
    """The states x_t = mode·x_{t-1} + v_t of v (B,T,P), given the powers (P,T) of the modes."""
    length = v.shape[1]
    size = transform_length(length)
    out = torch.empty_like(v)
    for part in _blocks(len(modes), 2 * len(v) * size):
        spectra = torch.fft.fft(powers[part], n=size)
        found = torch.fft.ifft(torch.fft.fft(v[..., part].transpose(1, 2), n=size) * spectra)
        out[..., part] = found[..., :length].transpose(1, 2)
    return out


def transform_length(length: int) -> int:
    """A length without wrapping round whose only prime factors are 2, 3 and 5."""
    least = 2 * length - 1
    best = 1 << (least - 1).bit_length()
    five = 1
    while five < best:
        three = five
        while three < best:
            two = three << max(0, -(-least // three) - 1).bit_length()
            best = min(best, two)
            three *= 3
        five *= 5
    return best


def _blocks(width: int, numbers: int) -> Iterator[slice]:
    """Slices of channels, each of which needs that many numbers, within the budget."""
    size = max(1, BUDGET // max(1, numbers))
    for start in range(0, width, size):
        yield slice(start, min(width, start + size))
