"""Arrays as flax writes them into msgpack: a shape, the name of a dtype, and the numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from memaudit.loading.formats.msgpack_values import (
    Allowance,
    BadMsgpack,
    Extension,
    parse_msgpack,
)
from memaudit.loading.formats.shapes import count_bytes

#: The kinds of value that flax adds to msgpack.
ARRAY, COMPLEX, SCALAR = 1, 2, 3
#: Marks a map that holds one array in pieces: msgpack ends at four gigabytes.
CHUNKED = "__msgpack_chunked_array__"
_DTYPES = frozenset(
    {
        *("float64", "float32", "float16", "bfloat16", "complex64", "complex128", "bool"),
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
    }
)
#: Flax cuts arrays into pieces of a gigabyte: nobody has so many.
MOST_PIECES = 4096
_LONGEST_NAME = 60


class UnknownDtype(ValueError):  # noqa: N818
    """The array has a dtype that torch does not have; the message names it."""


@dataclass(frozen=True, slots=True)
class FlaxArray:
    """A dense array in its bytes, in rows; its size is that of the bytes."""

    shape: tuple[int, ...]
    dtype: str
    pieces: tuple[memoryview, ...]

    def tensor(self) -> torch.Tensor:
        """A copy of its own."""
        kind = getattr(torch, self.dtype)
        if not any(map(len, self.pieces)):
            return torch.empty(self.shape, dtype=kind)
        raw = torch.frombuffer(bytearray().join(self.pieces), dtype=torch.uint8)
        if self.dtype == "bool" and bool((raw > 1).any()):
            raise BadMsgpack("holds truth values that are neither true nor false")
        return raw.view(kind).reshape(self.shape)


def read_extension(found: Extension, allowance: Allowance) -> FlaxArray | complex | None:
    """What an extension stands for; None for a kind that flax does not write."""
    if found.code in (ARRAY, SCALAR):
        array = _array(parse_msgpack(found.raw, allowance))
        if found.code == SCALAR and array.shape:
            raise BadMsgpack("holds a single number with a shape")
        return array
    if found.code != COMPLEX:
        return None
    match parse_msgpack(found.raw, allowance):
        case [int() | float() as real, int() | float() as imaginary]:
            return complex(real, imaginary)
    raise BadMsgpack("holds a complex number that is none")


def join_chunks(found: dict[str, Any], allowance: Allowance) -> FlaxArray:
    """The array that a map holds in pieces; the shape and the pieces are maps from "0" on."""
    if found.get(CHUNKED) is not True or set(found) != {CHUNKED, "shape", "chunks"}:
        raise BadMsgpack("holds an array in pieces that are none")
    shape, chunks = _listed(found["shape"]), _listed(found["chunks"])
    if len(chunks) > MOST_PIECES:
        raise BadMsgpack(f"holds an array in more than {MOST_PIECES} pieces")
    pieces = [_piece(chunk, allowance) for chunk in chunks]
    kinds = {array.dtype for array in pieces}
    if len(kinds) != 1:
        raise BadMsgpack("holds an array in pieces that do not belong together")
    return _checked(shape, kinds.pop(), tuple(raw for array in pieces for raw in array.pieces))


def _piece(chunk: Any, allowance: Allowance) -> FlaxArray:
    array = read_extension(chunk, allowance) if isinstance(chunk, Extension) else None
    if not isinstance(array, FlaxArray) or len(array.shape) != 1:
        raise BadMsgpack("holds an array in pieces that do not belong together")
    return array


def _array(found: Any) -> FlaxArray:
    match found:
        case [[*shape], str(dtype), memoryview() as raw]:
            if dtype not in _DTYPES:
                raise UnknownDtype(dtype[:_LONGEST_NAME])
            return _checked(shape, dtype, (raw,))
    raise BadMsgpack("holds an array that is cut short or damaged")


def _checked(shape: list[Any], dtype: str, pieces: tuple[memoryview, ...]) -> FlaxArray:
    width = getattr(torch, dtype).itemsize
    if count_bytes(shape, width) != sum(map(len, pieces)):
        raise BadMsgpack("holds an array that is not as large as it says")
    return FlaxArray(tuple(shape), dtype, pieces)


def _listed(found: Any) -> list[Any]:
    """A tuple as flax writes it: a map with the names "0", "1", …; or a plain list."""
    if isinstance(found, list):
        return found
    if not isinstance(found, dict) or any(str(i) not in found for i in range(len(found))):
        raise BadMsgpack("holds an array in pieces that are none")
    return [found[str(i)] for i in range(len(found))]
