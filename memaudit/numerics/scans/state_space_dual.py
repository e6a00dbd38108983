"""The recurrence of Mamba-2, as matrix products inside a chunk and a state between chunks."""

from __future__ import annotations

import math

import torch
from torch.nn import functional

from memaudit.numerics.scans.chunking import BUDGET, spans, working_dtype

#: Inside a chunk the work grows with its square; beyond this length the products gain nothing.
_LONGEST_CHUNK = 64


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
    for span in spans(length, _chunk_length(chunk_size, rows * heads)):
        rate = _rates(dt[:, span].to(dtype), dt_bias, dt_softplus, dt_limit)
        u, keys, queries = (x[:, span].to(dtype) for x in (hidden, B, C))
        y, state = _chunk(u * rate[..., None], rate * A.to(dtype), keys, queries, state)
        if D is not None:
            y.addcmul_(u, D.to(dtype).reshape(heads, -1))
        out[:, span] = y
    return (out, state.transpose(3, 4).reshape(first.shape)) if return_final_states else out


def _chunk_length(asked: int, matrices: int) -> int:
    """Steps in a chunk, so that its decays, one square matrix a head, keep to the budget."""
    return min(asked, _LONGEST_CHUNK, max(1, math.isqrt(BUDGET // max(1, matrices))))


def _rates(
    dt: torch.Tensor, bias: torch.Tensor | None, softplus: bool, limit: tuple[float, float]
) -> torch.Tensor:
    if bias is not None:
        dt = dt + bias.to(dt)
    if softplus:
        dt = functional.softplus(dt)
    return dt.clamp(*limit)


def _chunk(
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
