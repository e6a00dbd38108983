"""The storages of torch files: what their persistent ids say, and how wide their numbers are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from memaudit.errors import SourceError
from memaudit.loading.pickles.reading import damaged

#: Bytes of one number.
WIDTHS = {
    **{"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2},
    **{"float8_e4m3fn": 1, "float8_e4m3fnuz": 1, "float8_e5m2": 1, "float8_e5m2fnuz": 1},
    **{"complex128": 16, "complex64": 8, "complex32": 4, "bool": 1},
    **{"int8": 1, "int16": 2, "int32": 4, "int64": 8},
    **{"uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8},
}
_STORAGES = {
    **{"Double": "float64", "Float": "float32", "Half": "float16", "BFloat16": "bfloat16"},
    **{"ComplexDouble": "complex128", "ComplexFloat": "complex64", "Bool": "bool"},
    **{"Long": "int64", "Int": "int32", "Short": "int16", "Char": "int8"},
    # An untyped storage counts bytes; the tensor says what they are.
    **{"Byte": "uint8", "Untyped": "uint8"},
}
#: No storage has more numbers than this.
MOST_NUMBERS = 1 << 60


@dataclass(frozen=True, slots=True)
class Stored:
    """A storage by its key in the file, with the type and the count of its numbers."""

    key: str
    dtype: str
    count: int


def stored(name: str, ident: tuple[Any, ...]) -> Stored:
    """The storage that a persistent id speaks of.

    The id is ("storage", class, key, place, count), in legacy files with None behind it: a view
    of another storage would stand there, which torch has not written for years.
    """
    if len(ident) not in (5, 6) or ident[0] not in ("storage", b"storage"):
        raise damaged()
    key, count = ident[2], ident[4]
    if not isinstance(key, str) or type(count) is not int or not 0 <= count < MOST_NUMBERS:
        raise damaged()
    if ident[5:] not in ((), (None,)):
        raise _unsupported("a storage that is a view of another one")
    kind = name.rpartition(".")[2].removesuffix("Storage")
    if not name.startswith("torch.") or kind not in _STORAGES:
        what = "quantized tensors" if kind.startswith("Q") else f"a storage of the kind {name}"
        raise _unsupported(what)
    return Stored(key, _STORAGES[kind], count)


def dtype_of(name: str) -> str:
    """The dtype behind a name such as `torch.float32`."""
    found = name.removeprefix("torch.")
    if found not in WIDTHS or found == name:
        raise _unsupported(f"a tensor of the dtype {name}")
    return found


def _unsupported(what: str) -> SourceError:
    hint = "save plain dense tensors of a common dtype"
    return SourceError("E_UNSUPPORTED", f"the file holds {what}", hint=hint, stage="open")
