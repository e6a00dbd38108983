"""Keeps a float64 model in float64 where its code narrows numbers to float32."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager


class WideFloats(TorchFunctionMode):
    """Leaves float64 tensors as they are when they are asked to become float32.

    Norms and rotary positions of timm compute in float32 to save half-precision models; in
    float64 that would hide every digit behind the seventh.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = kwargs or {}
        first = args[0] if args else None
        if isinstance(first, Tensor) and first.dtype == torch.float64:
            if func is Tensor.float:
                return first
            if func is Tensor.to and torch.float32 in (*args[1:], given.get("dtype")):
                return first
        return func(*args, **given)


def wide_floats(dtype: torch.dtype) -> AbstractContextManager[Any]:
    """The mode for a model in float64; nothing for others."""
    return WideFloats() if dtype == torch.float64 else nullcontext()
