"""Tensors in an inert pickle: the call that would rebuild one says all there is to know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from memaudit.errors import SourceError, clean
from memaudit.loading.pickles.inert import Made, Named, Pairs
from memaudit.loading.pickles.reading import damaged
from memaudit.loading.pickles.storage_types import Stored, dtype_of

_DENSE = ("torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2")
_TYPED = "torch._utils._rebuild_tensor_v3"
_SUBCLASS = "torch._tensor._rebuild_from_type_v2"
#: Calls whose first argument is the tensor itself.
_WRAPPERS = (
    "torch._utils._rebuild_parameter",
    "torch._utils._rebuild_parameter_with_state",
    "torch._utils._rebuild_device_tensor_from_cpu_tensor",
)
#: A parameter of a subclass of a tensor is wrapped twice.
_DEEPEST_WRAPPING = 4
_ODD = {
    "torch._utils._rebuild_sparse_tensor": ("E_UNSUPPORTED", "is not strided (it is sparse)"),
    "torch._utils._rebuild_sparse_csr_tensor": ("E_UNSUPPORTED", "is not strided (it is sparse)"),
    "torch._utils._rebuild_qtensor": ("E_UNSUPPORTED", "is quantized"),
    "torch._utils._rebuild_nested_tensor": ("E_UNSUPPORTED", "is nested"),
    "torch._utils._rebuild_meta_tensor_no_storage": (
        "E_CORRUPT",
        "holds no numbers (device meta)",
    ),
}


#: Where in a tree something stands: the place of its container and its key there.
Place: TypeAlias = "tuple[Place, Any] | None"
_LONGEST_PATH = 8


@dataclass(frozen=True, slots=True)
class Record:
    """A tensor as a view of a storage; nothing of it has been checked but the types."""

    key: str
    dtype: str
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    conjugate: bool = False
    negative: bool = False


def tensor_record(made: Made, path: Place) -> Record | None:
    """The tensor that a call would have rebuilt; None when the call is about something else."""
    for _ in range(_DEEPEST_WRAPPING):
        arguments = made.arguments
        if made.name in _ODD:
            raise _odd(path, *_ODD[made.name])
        if made.name in _DENSE or made.name == _TYPED:
            return _record(arguments, typed=made.name == _TYPED)
        if not isinstance(arguments, tuple) or not arguments:
            return None
        if made.name == _SUBCLASS:
            made = _as_plain(arguments)
        elif made.name in _WRAPPERS and isinstance(arguments[0], Made):
            made = arguments[0]
        else:
            return None
    raise damaged()


def dotted(path: Place) -> str:
    """The name of a place, cleaned; only the end of a long one."""
    keys: list[str] = []
    while path is not None and len(keys) < _LONGEST_PATH:
        path, key = path
        keys.append(clean(key, limit=100))
    return ".".join(reversed(keys))


def _odd(path: Place, code: str, fact: str) -> SourceError:
    hint = "save plain dense tensors, e.g. tensor.to_dense().dequantize().contiguous()"
    return SourceError(code, f"the tensor {dotted(path)!r} {fact}", hint=hint, stage="open")


def _integers(value: Any) -> tuple[int, ...]:
    """A tuple of whole numbers, or a torch.Size that was to be made of one."""
    if isinstance(value, Made) and value.name == "torch.Size":
        value = value.arguments[0] if isinstance(value.arguments, tuple) else ()
    if not isinstance(value, tuple | list) or any(type(n) is not int for n in value):
        raise damaged()
    return tuple(value)


def _as_plain(arguments: tuple[Any, ...]) -> Made:
    """The call inside `_rebuild_from_type_v2(function, type, arguments, state)`."""
    if len(arguments) != 4 or not isinstance(arguments[0], Named):
        raise damaged()
    return Made(arguments[0], arguments[2])


def _record(arguments: Any, *, typed: bool) -> Record:
    """From (storage, offset, size, stride, requires_grad, hooks[, dtype][, metadata])."""
    if not isinstance(arguments, tuple) or not 4 <= len(arguments) <= 7 + typed:
        raise damaged()
    storage, offset = arguments[:2]
    if not isinstance(storage, Stored) or type(offset) is not int:
        raise damaged()
    dtype = storage.dtype
    if typed:
        if len(arguments) < 7 or not isinstance(arguments[6], Named):
            raise damaged()
        dtype = dtype_of(arguments[6].name)
    said = arguments[6 + typed] if len(arguments) > 6 + typed else None
    flags = _flags(said)
    size, stride = _integers(arguments[2]), _integers(arguments[3])
    return Record(storage.key, dtype, offset, size, stride, "conj" in flags, "neg" in flags)


def _flags(said: Any) -> set[str]:
    """The lazy operations on complex tensors that are still to be done."""
    pairs = said.pairs if isinstance(said, Pairs) else []
    if said is not None and not isinstance(said, Pairs):
        raise damaged()
    if any(key not in ("conj", "neg") or type(value) is not bool for key, value in pairs):
        fact = "a tensor in the file has properties that memaudit does not know"
        raise SourceError("E_UNSUPPORTED", fact, hint="save plain dense tensors", stage="open")
    return {key for key, value in pairs if value}
