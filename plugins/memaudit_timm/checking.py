"""The inputs that a subject takes, or a sentence on what is wrong with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from memaudit.errors import ArgumentError

if TYPE_CHECKING:
    import torch


def checked_floats(
    inputs: Any, width: int, *, device: torch.device, dtype: torch.dtype, longest: int | None = None
) -> Tensor:
    """The sequences (B,T,D) on the device of the model, in its dtype."""
    if not isinstance(inputs, Tensor):
        raise ArgumentError(f"the input must be a tensor, not {type(inputs).__name__}")
    wide = inputs.ndim == 3 and inputs.shape[2] == width
    if not inputs.is_floating_point() or not wide or 0 in inputs.shape:
        raise ArgumentError(
            f"the input is {tuple(inputs.shape)} of {inputs.dtype}",
            hint=f"feed floats of shape (B, T, {width}), with at least one step",
        )
    if longest is not None and inputs.shape[1] > longest:
        raise ArgumentError(
            f"the sequences have {inputs.shape[1]} steps, the model has {longest} patches",
            hint=f"feed at most {longest} steps",
        )
    return inputs.to(device, dtype)
