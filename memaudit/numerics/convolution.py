"""Causal convolution of sequences with kernels: by FFT, or chunk by chunk.

Unlike an FFT, chunks never let an answer depend on a later input, not even by a rounding, and the
rounding of every answer is as small as the answer: inside a chunk by a triangular matrix, between
chunks by the state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

#: Numbers in one block of a transform: enough for its speed, and bounded beside the activations.
BUDGET = 2**24
#: Numbers in the triangular matrices of all channels, and in one block of rows.
_TRIANGLES, _ROWS = 2**22, 2**23
_SHORTEST, _LONGEST = 16, 256


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


def filtered(inputs: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
    """The answers (B,T,M) to inputs (B,T,D) in float64; a shorter kernel ends in zeros."""
    u = inputs.to(torch.float64)
    steps = u.shape[1]
    rho = torch.zeros(steps, *kernel.shape[1:], dtype=torch.float64, device=u.device)
    rho[: len(kernel)] = kernel[:steps].to(u.device)
    return convolve(u, rho.permute(1, 2, 0)).sum(-1)


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


# In one transform, nothing written in place: a batch of copies can be run, and gradients flow.


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


# Chunk by chunk


@dataclass(frozen=True, slots=True)
class ChunkTables:
    """What a bank of H systems with N states needs for chunks of L steps.

    `kernel` (L,C,H) is that of the bank; `observe` (C,H,L,N) reads the answers of a chunk out of
    the state before it, `gather` (H,N,L) makes the state of its inputs, and `move` takes a state
    (H,N,B) over a chunk without inputs.
    """

    kernel: Tensor
    observe: Tensor
    gather: Tensor
    move: Callable[[Tensor], Tensor]


def chunk_size(length: int, channels: int) -> int:
    """Steps in a chunk, so that the triangular matrices of all channels stay small."""
    fits = int((_TRIANGLES / channels) ** 0.5)
    return max(1, min(length, max(_SHORTEST, min(_LONGEST, fits))))


def run_in_chunks(u: Tensor, tables: ChunkTables) -> Tensor:
    """The answers (B,T,C,H) to u (B,T,H)."""
    rows = max(1, _ROWS // (u.shape[1] * u.shape[2]))
    return torch.cat([_run_rows(part, tables) for part in u.split(rows)])


def _run_rows(u: Tensor, tables: ChunkTables) -> Tensor:
    batch, length, width = u.shape
    size, channels = tables.kernel.shape[:2]
    count = -(-length // size)
    padded = functional.pad(u, (0, 0, 0, count * size - length))
    # (H, L, B·chunks): one matrix product per channel for all chunks at once.
    inputs = padded.view(batch * count, size, width).permute(2, 1, 0).contiguous()
    states = _states(inputs, tables, batch, count)
    answers = []
    for c in range(channels):
        inside = torch.bmm(_triangle(tables.kernel[:, c]), inputs)
        answers.append(inside + _product(tables.observe[c], states))
    found = torch.stack(answers)  # (C,H,L,B·chunks)
    found = found.permute(3, 2, 0, 1).reshape(batch, count * size, channels, width)
    return found[:, :length]


def _states(inputs: Tensor, tables: ChunkTables, batch: int, count: int) -> Tensor:
    """The state (H,N,B·chunks) before every chunk."""
    gathered = _gathered(tables.gather, inputs).unflatten(2, (batch, count))
    state = torch.zeros_like(gathered[..., 0])
    before = []
    for fresh in gathered.unbind(3):
        before.append(state)
        state = tables.move(state) + fresh
    return torch.stack(before, dim=3).flatten(2)


def _gathered(gather: Tensor, inputs: Tensor) -> Tensor:
    """A complex or real matrix times real inputs."""
    if not gather.is_complex():
        return torch.bmm(gather, inputs)
    both = torch.bmm(torch.cat([gather.real, gather.imag], dim=1), inputs)
    return torch.complex(*both.chunk(2, dim=1))


def _product(observe: Tensor, states: Tensor) -> Tensor:
    """The real part of a matrix times states."""
    if not states.is_complex():
        return torch.bmm(observe, states)
    rows = torch.cat([observe.real, -observe.imag], dim=2)
    return torch.bmm(rows, torch.cat([states.real, states.imag], dim=1))


def _triangle(kernel: Tensor) -> Tensor:
    """(H,L,L): the kernel (L,H) at row minus column, zero above the diagonal."""
    size = len(kernel)
    at = torch.arange(size, device=kernel.device)
    lag = at[:, None] - at[None, :]
    full = kernel[lag.clamp(min=0)].permute(2, 0, 1)
    return torch.where(lag >= 0, full, 0.0)
