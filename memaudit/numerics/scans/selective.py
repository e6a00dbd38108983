"""The selective scan of Mamba: a diagonal recurrence for every channel, read out by C."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.nn import functional

from memaudit.numerics.scans.chunking import chunk_length, spans, working_dtype
from memaudit.numerics.scans.threads import shares, side_by_side

#: States in one step on a processor: few enough to stay in its caches from one step to the next,
#: and enough for the arithmetic of a step to outweigh the calls into torch.
_STATES = 2**18


@torch.no_grad()
def selective_scan(
    hidden: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,  # noqa: N803
    B: torch.Tensor,  # noqa: N803
    C: torch.Tensor,  # noqa: N803
    *,
    D: torch.Tensor | None = None,  # noqa: N803
    z: torch.Tensor | None = None,
    delta_bias: torch.Tensor | None = None,
    delta_softplus: bool = False,
    return_last_state: bool = False,
    initial_state: torch.Tensor | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Answers (B,d,T) of the selective scan, and its last state (B,d,N) if asked for.

    h_t = exp(dt_t A) h_{t-1} + dt_t B_t u_t,    y_t = (C_t · h_t + D u_t) silu(z_t)

    with `hidden` u, dt and z (B,d,T), A (d,N), B and C (B,N,T), D and `delta_bias` (d,); dt is
    shifted by the bias and put through softplus first, as asked. The answers have the dtype of
    `hidden`, the state has the dtype that was worked in. No gradient flows.
    """
    dtype = working_dtype(hidden, dt, A, B, C)
    rows, width, length = hidden.shape
    # Time before channels: the projection that follows a scan reads it so.
    out = hidden.new_empty(rows, length, width)
    state = hidden.new_zeros(rows, A.shape[1], width, dtype=dtype)
    if initial_state is not None:
        state.copy_(initial_state.transpose(1, 2))
    whole = _Part(hidden, dt, _base_two(A.to(dtype)), B, C, D, z, delta_bias, delta_softplus)
    on_processor = hidden.device.type == "cpu"

    def scan(share: slice) -> None:
        for r, c in _blocks(share, width, A.shape[1], on_processor=on_processor):
            state[r, :, c] = _scan(whole.block(r, c), state[r, :, c].contiguous(), out[r, :, c])

    side_by_side(scan, shares(rows, on_processor=on_processor))
    answers = out.transpose(1, 2)
    return (answers, state.transpose(1, 2)) if return_last_state else answers


@dataclass(frozen=True, slots=True)
class _Part:
    """Some rows and channels of the arguments; `exponent` is A in base 2, as (N,d)."""

    hidden: torch.Tensor
    dt: torch.Tensor
    exponent: torch.Tensor
    B: torch.Tensor
    C: torch.Tensor
    D: torch.Tensor | None
    z: torch.Tensor | None
    bias: torch.Tensor | None
    softplus: bool

    def block(self, rows: slice, channels: slice) -> _Part:
        return _Part(
            self.hidden[rows, channels],
            self.dt[rows, channels],
            self.exponent[:, channels].contiguous(),
            self.B[rows],
            self.C[rows],
            None if self.D is None else self.D[channels],
            None if self.z is None else self.z[rows, channels],
            None if self.bias is None else self.bias[channels],
            self.softplus,
        )


def _base_two(A: torch.Tensor) -> torch.Tensor:  # noqa: N803
    # exp2 takes half the time of exp on processors; the scaling rounds A by half a unit.
    return (A * math.log2(math.e)).t()


def _blocks(
    rows: slice, width: int, size: int, *, on_processor: bool
) -> Iterator[tuple[slice, slice]]:
    """Rows and channels to scan together, so that a step is no larger than is good."""
    if not on_processor:
        yield rows, slice(0, width)
        return
    channels = min(width, max(1, _STATES // size))
    together = max(1, _STATES // (channels * size))
    for r in range(rows.start, rows.stop, together):
        for c in range(0, width, channels):
            yield slice(r, min(r + together, rows.stop)), slice(c, c + channels)


def _scan(part: _Part, state: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Write the answers into `out` (B,T,d) and return the state (B,N,d) after them.

    What has no state is prepared in long stretches, the states are made in short chunks of them.
    """
    rows, length, width = out.shape
    size = chunk_length(length, state.numel())
    stretch = chunk_length(length, rows * width)
    # Made once: fresh memory costs as much as the arithmetic.
    room = state.new_empty(size, *state.shape)
    rooms = state.new_empty(4, stretch, rows, width)
    for span in spans(length, stretch):
        u, dt, inputs, y = rooms[:, : span.stop - span.start]
        _by_time(part.hidden[..., span], u)
        _rates(part, span, dt)
        torch.mul(dt, u, out=inputs)
        keys = part.B[..., span].permute(2, 0, 1).to(state.dtype).unsqueeze(3)
        queries = part.C[..., span].permute(2, 0, 1).to(state.dtype)
        for chunk in spans(len(u), size):
            states = room[: chunk.stop - chunk.start]
            torch.mul(dt[chunk].unsqueeze(2), part.exponent, out=states).exp2_()
            _advance(states, inputs[chunk].unsqueeze(2), keys[chunk], state)
            _read(queries[chunk], states, y[chunk])
        _finish(part, span, u, y, out[:, span].transpose(0, 1))
    return state


def _finish(part: _Part, span: slice, u: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> None:
    """Write the readings y, with the direct path and the gate, into `out`; all are (L,B,d)."""
    if part.D is not None:
        y.addcmul_(u, part.D.to(u))
    if part.z is not None:
        y.mul_(functional.silu(part.z[..., span].permute(2, 0, 1).to(y.dtype)))
    out.copy_(y)


def _advance(
    decays: torch.Tensor, inputs: torch.Tensor, keys: torch.Tensor, state: torch.Tensor
) -> None:
    """Turn the decays (L,B,N,d) into the states of their steps, and `state` into the last.

    The outer product of inputs (L,B,1,d) and keys (L,B,N,1) is added to a step while that is in
    the nearest cache; made beforehand, it would be written and read once more.
    """
    step = state
    for now, u, key in zip(decays.unbind(0), inputs.unbind(0), keys.unbind(0), strict=True):
        step = now.mul_(step).addcmul_(u, key)
    state.copy_(step)  # the next chunk writes over this one


def _read(queries: torch.Tensor, states: torch.Tensor, y: torch.Tensor) -> None:
    """Write C_t · h_t into y (L,B,d), for C (L,B,N) and h (L,B,N,d)."""
    # A row times a matrix: the product of a matrix with a column is far slower.
    row = queries.reshape(-1, 1, queries.shape[2])
    torch.bmm(row, states.flatten(0, 1), out=y.view(len(row), 1, -1))


def _rates(part: _Part, span: slice, dt: torch.Tensor) -> None:
    """Write the step sizes of a span into `dt` (L,B,d)."""
    _by_time(part.dt[..., span], dt)
    if part.bias is not None:
        dt.add_(part.bias.to(dt))
    if part.softplus:
        torch.ops.aten.softplus.out(dt, out=dt)


def _by_time(x: torch.Tensor, room: torch.Tensor) -> None:
    """Write (B,d,L) into a room of (L,B,d), where the channels lie side by side."""
    rows, width, length = x.shape
    if x.stride(1) == 1:
        room.copy_(x.permute(2, 0, 1))
        return
    # Two copies, dense ones: torch transposes a dense matrix in tiles, a slice five times slower.
    dense = x.reshape(rows * width, length).contiguous()
    room.view(length, rows * width).copy_(dense.t())
