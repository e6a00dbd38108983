"""The precision of a module: complex weights stay complex."""

from __future__ import annotations

import torch
from torch import nn


def cast(module: nn.Module, dtype: torch.dtype) -> None:
    """Put a module into a precision, in its place; `module.to` would cut complex weights."""
    wide = torch.promote_types(dtype, torch.complex64)
    for owner in module.modules():
        for name, weight in [*owner._parameters.items()]:
            if weight is None:
                continue
            kind = wide if weight.is_complex() else dtype
            owner._parameters[name] = nn.Parameter(weight.to(kind), requires_grad=False)
        for name, buffer in [*owner._buffers.items()]:
            if buffer is not None and (buffer.is_floating_point() or buffer.is_complex()):
                owner._buffers[name] = buffer.to(wide if buffer.is_complex() else dtype)
