"""Linear recurrences over long sequences, in bounded memory, in the precision of their inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import NamedTuple

import torch
from torch.nn import functional

from memaudit.numerics.chunking import (
    BUDGET,
    chunk_length,
    shares,
    side_by_side,
    spans,
    working_dtype,
)

#: States in one step on a processor: few enough to stay in its caches from one step to the next,
#: and enough for the arithmetic of a step to outweigh the calls into torch.
_STATES = 2**18
#: Eigenvalues from which on a selective scan is compiled, where numba is installed: loading the
#: compiled code takes about as long as an audit of a small model.
_COMPILED = 2**13
#: Inside a chunk the work grows with its square; beyond this length the products gain nothing.
_LONGEST_CHUNK = 64
#: The exponent of an empty past; far below every key, and finite so that differences are too.
_EMPTY = -1e38


# One gate for every channel and step


@torch.no_grad()
def linear_scan(
    gate: torch.Tensor, inputs: torch.Tensor, initial: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """All states (B,T,W) of a gated linear recurrence, and the last one (B,W).

    h_t = a_t h_{t-1} + x_t

    with the gate a and the inputs x (B,T,W), and h_{-1} = `initial` (B,W) or zero. The states
    have the dtype of the inputs, the last one the dtype that was worked in. No gradient flows.
    """
    dtype = working_dtype(gate, inputs)
    rows, length, width = inputs.shape
    state = inputs.new_zeros(rows, width, dtype=dtype)
    if initial is not None:
        state.copy_(initial)
    states = torch.empty_like(inputs, memory_format=torch.contiguous_format)
    for span in spans(length, chunk_length(length, rows * width)):
        # Time first: every step then reads and writes one contiguous piece.
        gates = gate[:, span].transpose(0, 1).to(dtype).contiguous()
        chunk = torch.empty_like(gates).copy_(inputs[:, span].transpose(0, 1))
        step = state
        for now, decay in zip(chunk.unbind(0), gates.unbind(0), strict=True):
            step = now.addcmul_(decay, step)
        state.copy_(step)  # the chunk is freed, the state is not
        states[:, span] = chunk.transpose(0, 1)
    return states, state


# Mamba: a diagonal recurrence for every channel, read out by C


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
    whole = _SelectivePart(
        hidden, dt, _base_two(A.to(dtype)), B, C, D, z, delta_bias, delta_softplus
    )
    on_processor = hidden.device.type == "cpu"

    def scan(share: slice) -> None:
        for r, c in _selective_blocks(share, width, A.shape[1], on_processor=on_processor):
            state[r, :, c] = _scan_part(
                whole.block(r, c), state[r, :, c].contiguous(), out[r, :, c]
            )

    compiled = _compiled(whole, state, out)
    work, parts = (scan, rows) if compiled is None else compiled
    side_by_side(work, shares(parts, on_processor=on_processor))
    answers = out.transpose(1, 2)
    return (answers, state.transpose(1, 2)) if return_last_state else answers


@dataclass(frozen=True, slots=True)
class _SelectivePart:
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

    def block(self, rows: slice, channels: slice) -> _SelectivePart:
        return _SelectivePart(
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


@cache
def _kernels() -> ModuleType | None:
    """The compiled scan; None without numba, or where it may keep its work in no folder."""
    try:
        return import_module("memaudit.numerics.kernels")
    except (ImportError, RuntimeError):
        return None


def _compiled(
    part: _SelectivePart, state: torch.Tensor, out: torch.Tensor
) -> tuple[Callable[[slice], None], int] | None:
    """The compiled scan of a slice of blocks and how many blocks there are, None where torch scans.

    The choice depends on the model alone: answers are the same in every batch and for every length.
    """
    if part.exponent.numel() < _COMPILED:
        return None
    none, zero = out.new_empty(0), out.new_zeros(out.shape[2])
    tensors = (
        *(part.hidden, part.dt, part.exponent.contiguous(), part.B, part.C),
        none if part.D is None else part.D.contiguous(),
        none.view(0, 0, 0) if part.z is None else part.z,
        zero if part.bias is None else part.bias.contiguous(),
        *(state, out),
    )
    if any(type(x) not in (torch.Tensor, torch.nn.Parameter) for x in tensors):
        return None
    if any(x.device.type != "cpu" or x.dtype != torch.float32 for x in tensors):
        return None
    kernels = _kernels()
    if kernels is None:
        return None
    try:
        *given, last, answers = (x.detach().numpy() for x in tensors)
    except RuntimeError:  # inside a transform of torch.func a tensor has no memory of its own
        return None
    blocks = len(out) * -(-out.shape[2] // kernels.BLOCK)

    def scan(share: slice) -> None:
        kernels.scan_blocks(*given, part.softplus, last, answers, share.start, share.stop)

    return scan, blocks


def _base_two(A: torch.Tensor) -> torch.Tensor:  # noqa: N803
    # exp2 takes half the time of exp on processors; the scaling rounds A by half a unit.
    return (A * math.log2(math.e)).t()


def _selective_blocks(
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


def _scan_part(part: _SelectivePart, state: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
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
        _selective_rates(part, span, dt)
        torch.mul(dt, u, out=inputs)
        keys = part.B[..., span].permute(2, 0, 1).to(state.dtype).unsqueeze(3)
        queries = part.C[..., span].permute(2, 0, 1).to(state.dtype)
        for chunk in spans(len(u), size):
            states = room[: chunk.stop - chunk.start]
            torch.mul(dt[chunk].unsqueeze(2), part.exponent, out=states).exp2_()
            _advance(states, inputs[chunk].unsqueeze(2), keys[chunk], state)
            _read_states(queries[chunk], states, y[chunk])
        _finish_selective(part, span, u, y, out[:, span].transpose(0, 1))
    return state


def _finish_selective(
    part: _SelectivePart, span: slice, u: torch.Tensor, y: torch.Tensor, out: torch.Tensor
) -> None:
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


def _read_states(queries: torch.Tensor, states: torch.Tensor, y: torch.Tensor) -> None:
    """Write C_t · h_t into y (L,B,d), for C (L,B,N) and h (L,B,N,d)."""
    # A row times a matrix: the product of a matrix with a column is far slower.
    row = queries.reshape(-1, 1, queries.shape[2])
    torch.bmm(row, states.flatten(0, 1), out=y.view(len(row), 1, -1))


def _selective_rates(part: _SelectivePart, span: slice, dt: torch.Tensor) -> None:
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


# Mamba-2: matrix products inside a chunk and a state between chunks


@torch.no_grad()
def chunk_scan(
    hidden: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,  # noqa: N803
    B: torch.Tensor,  # noqa: N803
    C: torch.Tensor,  # noqa: N803
    *,
    chunk_size: int,
    D: torch.Tensor | None = None,  # noqa: N803
    dt_bias: torch.Tensor | None = None,
    initial_states: torch.Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, math.inf),
    return_final_states: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Answers (B,T,H,P) of the state space dual, and its last state (B,H,P,N) if asked for.

    h_t = exp(dt_t A) h_{t-1} + dt_t u_t B_t,    y_t = h_t C_t + D u_t

    with `hidden` u (B,T,H,P), dt (B,T,H), A (H,), B and C (B,T,G,N) shared by H/G heads each, D
    (H,) or (H,P); dt is shifted, put through softplus and clamped first, as asked. `chunk_size`
    is the longest chunk; it changes no answer. The answers have the dtype of `hidden`, the state
    has the dtype that was worked in. No gradient flows.
    """
    dtype = working_dtype(hidden, dt, A, B, C)
    rows, length, heads, width = hidden.shape
    first = hidden.new_zeros(rows, heads, width, B.shape[3], dtype=dtype)
    if initial_states is not None:
        first.copy_(initial_states)
    state = first.view(rows, B.shape[2], -1, width, B.shape[3]).transpose(3, 4)
    out = torch.empty_like(hidden, memory_format=torch.contiguous_format)
    for span in spans(length, _dual_chunk_length(chunk_size, rows * heads)):
        rate = _dual_rates(dt[:, span].to(dtype), dt_bias, dt_softplus, dt_limit)
        u, keys, queries = (x[:, span].to(dtype) for x in (hidden, B, C))
        y, state = _dual_chunk(u * rate[..., None], rate * A.to(dtype), keys, queries, state)
        if D is not None:
            y.addcmul_(u, D.to(dtype).reshape(heads, -1))
        out[:, span] = y
    return (out, state.transpose(3, 4).reshape(first.shape)) if return_final_states else out


def _dual_chunk_length(longest: int, matrices: int) -> int:
    """Steps in a chunk, so that its decays, one square matrix a head, keep to the budget."""
    return min(longest, _LONGEST_CHUNK, max(1, math.isqrt(BUDGET // max(1, matrices))))


def _dual_rates(
    dt: torch.Tensor, bias: torch.Tensor | None, softplus: bool, limit: tuple[float, float]
) -> torch.Tensor:
    if bias is not None:
        dt = dt + bias.to(dt)
    if softplus:
        dt = functional.softplus(dt)
    return dt.clamp(*limit)


def _dual_chunk(
    u: torch.Tensor,
    log_decay: torch.Tensor,
    keys: torch.Tensor,
    queries: torch.Tensor,
    state: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Answers (B,L,H,P) and the state (B,G,R,N,P) after a chunk of L steps.

    u (B,L,H,P) is already scaled by dt; keys and queries are B and C (B,L,G,N); R = H/G.
    """
    rows, length, heads, width = u.shape
    groups = keys.shape[2]
    values = u.view(rows, length, groups, -1, width).permute(0, 2, 3, 1, 4)  # (B,G,R,L,P)
    log_decay = log_decay.view(rows, length, groups, -1).permute(0, 2, 3, 1)  # (B,G,R,L)
    decay = _decays(log_decay)
    since_start = log_decay.cumsum(-1).exp_().unsqueeze(-1)
    scores = torch.einsum("blgn,bsgn->bgls", queries, keys).unsqueeze(2)
    answer = torch.einsum("blgn,bgrnp->bgrlp", queries, state) * since_start
    fresh = torch.einsum("blgn,bgrlp->bgrnp", keys, values * decay[..., -1, :, None])
    state = torch.addcmul(fresh, state, since_start[..., -1:, :])
    answer += (decay * scores) @ values
    return answer.permute(0, 3, 1, 2, 4).reshape(rows, length, heads, width), state


def _decays(log_decay: torch.Tensor) -> torch.Tensor:
    """Decay from step s to step l >= s, (…,l,s), and zero for l < s.

    Every sum over a stretch is added up on its own: differences of one running sum would lose the
    small decays that follow a large one.
    """
    length = log_decay.shape[-1]
    square = log_decay.new_ones(length, length, dtype=torch.bool)
    stretches = log_decay.unsqueeze(-1).expand(*log_decay.shape, length)
    sums = stretches.masked_fill(~square.tril(-1), 0).cumsum(-2)
    return sums.masked_fill_(~square.tril(), -math.inf).exp_()


# RWKV-4: a weighted mean over the past, weights decaying in time


class _Past(NamedTuple):
    """The past as sums = (numerator, denominator) of shape (2,B,W), times exp(exponent)."""

    sums: torch.Tensor
    exponent: torch.Tensor


@torch.no_grad()
def wkv_scan(
    time_decay: torch.Tensor,
    time_first: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    state: Sequence[torch.Tensor] | None = None,
    return_state: bool = False,
) -> tuple[torch.Tensor, list[torch.Tensor] | None]:
    """Answers (B,T,W) of the attention, and its state when asked for or given.

    y_t = (p_{t-1} + e^{u + k_t} v_t) / (q_{t-1} + e^{u + k_t}),
    p_t = e^{-w} p_{t-1} + e^{k_t} v_t,    q_t = e^{-w} q_{t-1} + e^{k_t}

    with key k and value v (B,T,W), u = `time_first` and w = exp(`time_decay`) of shape (W,). The
    state is [p e^{-m}, q e^{-m}, m], each (B,W), where m is the running maximum that keeps the
    exponentials below one. The answers have the dtype of the key. No gradient flows.
    """
    dtype = working_dtype(time_decay, time_first, key, value)
    rows, length, width = key.shape
    past = _first_past(state, key.new_empty(rows, width, dtype=dtype))
    decay, bonus = -torch.exp(time_decay.to(dtype)), time_first.to(dtype)
    answers = torch.empty_like(key, memory_format=torch.contiguous_format)
    for span in spans(length, chunk_length(length, 2 * rows * width)):
        keys = key[:, span].transpose(0, 1).to(dtype).contiguous()
        values = value[:, span].transpose(0, 1).to(dtype).contiguous()
        answer, past = _wkv_chunk(decay, bonus, keys, values, past)
        answers[:, span] = answer.transpose(0, 1)
    wanted = return_state or state is not None
    return answers, [*past.sums.unbind(0), past.exponent] if wanted else None


def _first_past(state: Sequence[torch.Tensor] | None, like: torch.Tensor) -> _Past:
    if state is None:
        return _Past(torch.zeros_like(like).expand(2, *like.shape), torch.full_like(like, _EMPTY))
    numerator, denominator, exponent = (part.to(like) for part in state)
    return _Past(torch.stack((numerator, denominator)), exponent)


def _wkv_chunk(
    decay: torch.Tensor, bonus: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, past: _Past
) -> tuple[torch.Tensor, _Past]:
    """Answers (L,B,W) to keys and values (L,B,W), and the past after them."""
    exponents = _exponents(decay, keys, past.exponent)
    before, after = exponents[:-1], exponents[1:]
    fade = torch.exp(before + decay - after).unsqueeze(1)
    fresh = torch.exp(keys - after)
    sums = keys.new_empty(len(keys) + 1, *past.sums.shape)
    sums[0] = past.sums
    torch.mul(fresh, values, out=sums[1:, 0])
    sums[1:, 1] = fresh
    step, *later = sums.unbind(0)
    for now, keep in zip(later, fade.unbind(0), strict=True):
        step = now.addcmul_(keep, step)
    shifted = keys + bonus
    top = torch.maximum(before, shifted)
    old, new = torch.exp(before - top), torch.exp(shifted - top)
    answer = (old * sums[:-1, 0]).addcmul_(new, values)
    answer /= (old * sums[:-1, 1]).add_(new)
    return answer, _Past(sums[-1].clone(), exponents[-1].clone())


def _exponents(decay: torch.Tensor, keys: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
    """m_t = max(m_{t-1} - w, k_t) for every step, with m_{-1} in front, as (L+1,B,W)."""
    exponents = keys.new_empty(len(keys) + 1, *first.shape)
    exponents[0] = first
    faded = torch.empty_like(first)
    step, *later = exponents.unbind(0)
    for now, key in zip(later, keys.unbind(0), strict=True):
        torch.add(step, decay, out=faded)
        step = torch.maximum(faded, key, out=now)
    return exponents
