"""Banks run chunk by chunk: inside a chunk by a triangular matrix, between chunks by the state.

Unlike an FFT this never lets an answer depend on a later input, not even by a rounding, and the
rounding of every answer is as small as the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

#: Numbers in the triangular matrices of all channels, and in one block of rows.
_TRIANGLES, _ROWS = 2**22, 2**23
_SHORTEST, _LONGEST = 16, 256


@dataclass(frozen=True, slots=True)
class Tables:
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


def run_in_chunks(u: Tensor, tables: Tables) -> Tensor:
    """The answers (B,T,C,H) to u (B,T,H)."""
    rows = max(1, _ROWS // (u.shape[1] * u.shape[2]))
    return torch.cat([_run(part, tables) for part in u.split(rows)])


def _run(u: Tensor, tables: Tables) -> Tensor:
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


def _states(inputs: Tensor, tables: Tables, batch: int, count: int) -> Tensor:
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
