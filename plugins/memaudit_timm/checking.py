"""The inputs that a subject takes, or a sentence on what is wrong with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memaudit.errors import ArgumentError
from memaudit.numerics.inputs import checked_inputs

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def checked_floats(
    inputs: Any, width: int, *, device: torch.device, dtype: torch.dtype, longest: int | None = None
) -> Tensor:
    """The sequences (B,T,D) on the device of the model, in its dtype."""
    sequences = checked_inputs(inputs, width=width, vocabulary=None, device=device, dtype=dtype)
    if longest is not None and sequences.shape[1] > longest:
        raise ArgumentError(
            f"the sequences have {sequences.shape[1]} steps, the model has {longest} patches",
            hint=f"feed at most {longest} steps",
        )
    return sequences
