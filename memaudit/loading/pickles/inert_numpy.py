"""Numpy objects in an inert pickle: scalars become numbers, arrays keep their bytes."""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass
from typing import Any

from memaudit.loading.pickles.inert import Made
from memaudit.loading.pickles.reading import damaged

_MODULE = re.compile(r"numpy\.(_core|core)\.(multiarray|numeric)\.(\w+)")
#: Code of a dtype → its name in torch, and its letter for `struct`.
_DTYPES = {
    **{"f2": ("float16", "e"), "f4": ("float32", "f"), "f8": ("float64", "d")},
    **{"i1": ("int8", "b"), "i2": ("int16", "h"), "i4": ("int32", "i"), "i8": ("int64", "q")},
    **{"u1": ("uint8", "B"), "u2": ("uint16", "H"), "u4": ("uint32", "I"), "u8": ("uint64", "Q")},
    **{"b1": ("bool", "?"), "c8": ("complex64", ""), "c16": ("complex128", "")},
}
MOST_DIMENSIONS = 64


@dataclass(frozen=True, slots=True)
class Array:
    """A dense array of numbers, with its bytes."""

    dtype: str
    shape: tuple[int, ...]
    big_endian: bool
    column_major: bool
    raw: bytes


def numpy_value(made: Made) -> Array | int | float | bool | None:
    """The array or number that was to be made; None for everything else."""
    known = _MODULE.fullmatch(made.name)
    if known is None or not isinstance(made.arguments, tuple):
        return None
    refilled = made.state is not None and known[3] != "_reconstruct"
    if refilled or made.pairs is not None or made.items is not None:
        raise damaged("an array in the file changes after it was made")
    if known[3] == "scalar" and len(made.arguments) == 2:
        return _scalar(*made.arguments)
    if known[3] == "_reconstruct" and isinstance(made.state, tuple) and len(made.state) == 5:
        _, shape, dtype, column_major, raw = made.state
        return _array(shape, dtype, raw, column_major=column_major is True)
    if known[3] == "_frombuffer" and len(made.arguments) == 4:
        raw, dtype, shape, order = made.arguments
        return _array(shape, dtype, raw, column_major=order == "F")
    return None


def raw_bytes(value: Any) -> bytes | None:
    """Bytes, which old protocols write as text that is to be encoded."""
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if isinstance(value, Made) and value.name == "_codecs.encode":
        match value.arguments:
            case (str(text), "latin1" | "latin-1"):
                try:
                    return text.encode("latin-1")
                except UnicodeEncodeError:
                    return None
    if isinstance(value, Made) and value.name == "builtins.bytes" and value.arguments == ():
        return b""
    return None


def _dtype(value: Any) -> tuple[str, bool] | None:
    """The code of a dtype and whether it is big-endian."""
    if not isinstance(value, Made) or value.name != "numpy.dtype":
        return None
    match value.arguments, value.state:
        case (str(code), *_), (_, ("<" | ">" | "|" | "=") as order, *_):
            return (code, order == ">") if code in _DTYPES else None
    return None


def _scalar(dtype: Any, value: Any) -> int | float | bool | None:
    found, raw = _dtype(dtype), raw_bytes(value)
    if found is None or raw is None:
        return None
    code, big_endian = found
    letter = _DTYPES[code][1]
    if not letter or len(raw) != struct.calcsize(f"={letter}"):
        return None
    return struct.unpack(f"{'>' if big_endian else '<'}{letter}", raw)[0]


def _array(shape: Any, dtype: Any, value: Any, *, column_major: bool) -> Array | None:
    found, raw = _dtype(dtype), raw_bytes(value)
    if found is None or raw is None or not isinstance(shape, tuple):
        return None
    if len(shape) > MOST_DIMENSIONS or any(type(n) is not int or n < 0 for n in shape):
        return None
    code, big_endian = found
    if math.prod(shape) * int(code[1:]) != len(raw):
        return None
    return Array(_DTYPES[code][0], shape, big_endian, column_major, raw)
