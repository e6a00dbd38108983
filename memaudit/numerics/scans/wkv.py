"""The linear attention of RWKV-4: a weighted mean over the past, weights decaying in time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from memaudit.numerics.scans.chunking import chunk_length, spans, working_dtype

#: The exponent of an empty past; far below every key, and finite so that differences are too.
_EMPTY = -1e38


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
    past = _first(state, key.new_empty(rows, width, dtype=dtype))
    decay, bonus = -torch.exp(time_decay.to(dtype)), time_first.to(dtype)
    answers = torch.empty_like(key, memory_format=torch.contiguous_format)
    for span in spans(length, chunk_length(length, 2 * rows * width)):
        keys = key[:, span].transpose(0, 1).to(dtype).contiguous()
        values = value[:, span].transpose(0, 1).to(dtype).contiguous()
        answer, past = _chunk(decay, bonus, keys, values, past)
        answers[:, span] = answer.transpose(0, 1)
    wanted = return_state or state is not None
    return answers, [*past.sums.unbind(0), past.exponent] if wanted else None


def _first(state: Sequence[torch.Tensor] | None, like: torch.Tensor) -> _Past:
    if state is None:
        return _Past(torch.zeros_like(like).expand(2, *like.shape), torch.full_like(like, _EMPTY))
    numerator, denominator, exponent = (part.to(like) for part in state)
    return _Past(torch.stack((numerator, denominator)), exponent)


def _chunk(
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
