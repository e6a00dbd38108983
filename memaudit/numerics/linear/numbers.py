"""Real and complex numbers where a system may have either."""

from __future__ import annotations

import torch
from torch import Tensor


def real_part(values: Tensor) -> Tensor:
    """The real part of complex numbers; real ones as they are."""
    return values.real if values.is_complex() else values


def as_complex(values: Tensor) -> Tensor:
    """The same numbers, complex, in their precision."""
    return values.to(torch.promote_types(values.dtype, torch.complex64))
