"""What a subject may be fed: floats of its width, or token ids that it knows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from memaudit.errors import ArgumentError


def checked_inputs(
    inputs: Any,
    *,
    width: int,
    vocabulary: int | None,
    device: torch.device,
    dtype: torch.dtype,
) -> Tensor:
    """Floats (B,T,width) in the dtype, or ids (B,T) in int64, on the device; or ArgumentError.

    `vocabulary` is the number of token ids, None for a model that takes floats alone.
    """
    if not isinstance(inputs, Tensor):
        raise ArgumentError(f"the input must be a tensor, not {type(inputs).__name__}")
    if 0 in inputs.shape:
        raise ArgumentError(
            f"the input is empty: its shape is {tuple(inputs.shape)}; "
            "a sequence needs at least one step"
        )
    if inputs.is_complex() or inputs.dtype == torch.bool:
        raise ArgumentError(f"the input must hold floats or token ids, not {inputs.dtype}")
    if not inputs.is_floating_point():
        return _ids(inputs, width, vocabulary).to(device, torch.int64)
    if inputs.ndim != 3 or inputs.shape[2] != width:
        raise ArgumentError(
            f"the model takes floats of shape (B, T, {width}), not {tuple(inputs.shape)}"
        )
    return inputs.to(device, dtype)


def _ids(inputs: Tensor, width: int, vocabulary: int | None) -> Tensor:
    if vocabulary is None:
        raise ArgumentError(
            "the model has no embedding that could take token ids",
            hint=f"feed floats of shape (B, T, {width})",
        )
    if inputs.ndim != 2:
        raise ArgumentError(f"token ids have shape (B, T), not {tuple(inputs.shape)}")
    low, high = int(inputs.min()), int(inputs.max())
    if low < 0 or high >= vocabulary:
        wrong = low if low < 0 else high
        raise ArgumentError(
            f"token id {wrong} is out of range: the embedding has {vocabulary} rows"
        )
    return inputs
