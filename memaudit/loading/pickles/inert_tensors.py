"""Tensors in an inert pickle: the call that would rebuild one says all there is to know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from memaudit.errors import SourceError, clean
from memaudit.loading.pickles.inert import Made, Named, Pairs
from memaudit.loading.pickles.reading import damaged
from memaudit.loading.pickles.storage_types import Stored, dtype_of
from memaudit.loading.pickles.tensor_attributes import changes_tensor

DENSE = ("torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2")
TYPED = "torch._utils._rebuild_tensor_v3"
SUBCLASS = "torch._tensor._rebuild_from_type_v2"
#: Calls whose first argument is the tensor itself.
_WITH_STATE = "torch._utils._rebuild_parameter_with_state"
_CONVERTED = "torch._utils._rebuild_device_tensor_from_cpu_tensor"
_WRAPPERS = ("torch._utils._rebuild_parameter", _WITH_STATE, _CONVERTED)
#: A parameter of a subclass of a tensor is wrapped twice.
DEEPEST_WRAPPING = 4
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
_REBUILDERS = (*DENSE, TYPED, SUBCLASS, *_WRAPPERS)
MOST_DIMENSIONS = 64

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
    dtypes: list[Any] = []
    for _ in range(DEEPEST_WRAPPING):
        name, arguments = made.name, made.arguments
        if name in _ODD:
            raise _odd(path, *_ODD[name])
        if name not in _REBUILDERS:
            return None
        if made.state is not None or made.pairs is not None or made.items is not None:
            raise _odd(path, "E_UNSUPPORTED", "changes after it was made")
        if name in DENSE or name == TYPED:
            record = _record(arguments, typed=name == TYPED)
            if any(dtype != record.dtype for dtype in dtypes):
                raise _odd(path, "E_UNSUPPORTED", "is to be converted to another dtype")
            return record
        if not isinstance(arguments, tuple) or not arguments:
            return None
        if name in (SUBCLASS, _WITH_STATE) and changes_tensor(arguments[3:]):
            raise _odd(path, "E_UNSUPPORTED", "has attributes that would change it")
        if name == _CONVERTED:
            dtypes.append(_target(arguments))
        inner = _as_plain(arguments) if name == SUBCLASS else arguments[0]
        if not isinstance(inner, Made):
            return None
        made = inner
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
        match value.arguments:
            case (tuple(given),):
                value = given
    if not isinstance(value, tuple) or len(value) > MOST_DIMENSIONS:
        raise damaged("a tensor in the file has an impossible shape")
    if any(type(n) is not int for n in value):
        raise damaged()
    return value


def _target(arguments: tuple[Any, ...]) -> str:
    """The dtype in `_rebuild_device_tensor_from_cpu_tensor(tensor, dtype, device, grad)`."""
    if len(arguments) != 4 or not isinstance(arguments[1], Named):
        raise damaged()
    return dtype_of(arguments[1].name)


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
    if len(pairs) > 2 or any(
        key not in ("conj", "neg") or type(value) is not bool for key, value in pairs
    ):
        fact = "a tensor in the file has properties that memaudit does not know"
        raise SourceError("E_UNSUPPORTED", fact, hint="save plain dense tensors", stage="open")
    return {key for key, value in dict(pairs).items() if value}
