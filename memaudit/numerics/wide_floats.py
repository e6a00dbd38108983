"""A float64 model that is float64 throughout, although its library asks for float32 inside."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_WIDER: dict[Any, torch.dtype] = {
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
    "torch.FloatTensor": torch.float64,
    torch.FloatTensor: torch.float64,
}
#: Reading the same bits as another dtype is no request for a precision.
_BITS = (Tensor.view,)
#: Conversions to the dtype of another tensor.
_LIKE = (Tensor.to, Tensor.type_as)


@contextmanager
def really_float64(dtype: torch.dtype) -> Iterator[None]:
    """While open, every request for float32 is read as one for float64, if that is the dtype.

    Norms, softmaxes, rotary positions and scans of model libraries cast to float32 to be safe in
    half precision; in a float64 audit that would be the one narrow place that everything passes.
    """
    with ExitStack() as stack:
        if dtype == torch.float64:
            stack.callback(torch.set_default_dtype, torch.get_default_dtype())
            torch.set_default_dtype(torch.float64)
            stack.enter_context(_Widening())
        yield


@contextmanager
def without_widening() -> Iterator[None]:
    """While open, requests mean what they say again: for code that is not the model's."""
    before = torch.get_default_dtype()
    with torch._C.DisableTorchFunction():
        torch.set_default_dtype(torch.float32)
        try:
            yield
        finally:
            torch.set_default_dtype(before)


class _Widening(TorchFunctionMode):
    """Sees every torch function that is called, with its arguments."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        del types
        options = {name: _wider(value) for name, value in (kwargs or {}).items()}
        if func is Tensor.float:
            return args[0].to(torch.float64, **options)
        if func in _LIKE and len(args) > 1 and _is_narrow(args[1]):
            return args[0].to(args[1].device, torch.float64)
        if func not in _BITS:
            args = tuple(_wider(value) for value in args)
        return func(*args, **options)


def _wider(value: Any) -> Any:
    """The argument, or the wider dtype where it is a narrow one."""
    if isinstance(value, torch.dtype | str | type):
        return _WIDER.get(value, value)
    return value


def _is_narrow(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype == torch.float32
