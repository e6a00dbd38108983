"""The library's slow scans replaced by memaudit's own while a model answers."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from memaudit_transformers.recurrent.calling import CALLS
from memaudit_transformers.recurrent.finding import find_recurrences
from memaudit_transformers.recurrent.kernels import signature_of
from memaudit_transformers.recurrent.patching import replaced
from memaudit_transformers.recurrent.places import kernel_places
from memaudit_transformers.recurrent.taps import TAPS, tapped

if TYPE_CHECKING:
    from torch import nn

    from memaudit_transformers.recurrent.places import Place

#: The attribute that marks a function of ours: it is not replaced again.
FAST = "memaudit_fast"
#: Documents packed into one row: only the compiled kernels keep them apart.
PACKED = ("seq_idx", "cu_seqlens")


@contextmanager
def fast_scans(model: nn.Module) -> Iterator[None]:
    """Selective, chunk, linear and wkv scans in chunks of time, in the dtype of the weights.

    Compiled kernels on their own device are left alone, and so is every layer whose code calls
    no scan that is known here. Afterwards everything is as before, whatever happens.
    """
    compiled = any(parameter.is_cuda for parameter in model.parameters())
    changes = [
        (place, quickened(place))
        for place in kernel_places(find_recurrences(model))
        if place.kernel in CALLS
        and not hasattr(place.function, FAST)
        and not (compiled and has_kernel(place))
    ]
    with replaced(changes):
        yield


def quickened(place: Place) -> Callable[..., Any]:
    """Our scan under the library's calling convention; taps on the old one stay."""
    slow, call = place.function, CALLS[place.kernel]
    signature = signature_of(slow)

    @functools.wraps(slow)
    def quick(*args: Any, **kwargs: Any) -> Any:
        if any(kwargs.get(name) is not None for name in PACKED):
            return slow(*args, **kwargs)
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        # Our scans ask for no dtype: a mode that reads such requests would only slow them down.
        with torch._C.DisableTorchFunction():
            return call(bound.arguments)

    setattr(quick, FAST, True)
    setattr(quick, TAPS, ())  # those of the old one are not called by the new one, but put on it
    whole: Callable[..., Any] = quick
    for tap in getattr(slow, TAPS, ()):
        whole = tapped(whole, *tap)
    return whole


def has_kernel(place: Place) -> bool:
    """Whether the library found a compiled kernel for this function."""
    if place.namespace.get("rwkv_cuda_kernel") is not None:
        return True
    found = inspect.getclosurevars(place.function).nonlocals if _closed(place.function) else {}
    return bool(found.get("is_new_implementation"))


def _closed(function: Any) -> bool:
    return inspect.isfunction(function) and function.__closure__ is not None
