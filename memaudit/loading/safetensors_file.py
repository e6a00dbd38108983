"""Safetensors files: their header, checked to the byte, and their tensors."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from memaudit.errors import SourceError, clean
from memaudit.loading.access import human_size
from memaudit.loading.files import Meter, OnePass, out_of_memory
from memaudit.loading.formats import (
    BadJson,
    TooManyPieces,
    corrupt,
    count_bytes,
    parse_object,
    too_many,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memaudit.loading.access import Access, Limits
    from memaudit.loading.files import RegularFile

# -- The header of a safetensors file, checked in plain Python before a byte of weights is read.

#: Bytes per number. Smaller than a byte (F4, F6) or without a torch type: not here.
DTYPES = {
    **dict.fromkeys(("BOOL", "U8", "I8"), 1),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 1),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2),
    **dict.fromkeys(("F32", "I32", "U32"), 4),
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 8),
}
_METADATA = "__metadata__"
_LENGTH = struct.Struct("<Q")
#: Commas and brackets of one entry with more dimensions than weights have.
_PIECES = 16


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor: its name, its type by safetensors' word, its shape and its bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Header:
    """What stands before the weights: `raw` as it is in the file, entries in file order."""

    raw: bytes
    entries: tuple[Entry, ...]
    metadata: dict[str, str]


def read_header(file: RegularFile, limits: Limits) -> Header:
    """The header of a file; its entries cover the bytes behind it exactly."""
    if file.size < _LENGTH.size:
        raise corrupt("the safetensors file is cut short")
    (length,) = _LENGTH.unpack(file.read(0, _LENGTH.size))
    if length > limits.max_header:
        raise SourceError(
            "E_LIMIT",
            f"the safetensors header claims {human_size(length)}, "
            f"more than {human_size(limits.max_header)}",
            hint="the file is damaged, or raise the limit with --set max_header=SIZE",
            stage="open",
        )
    if length > file.size - _LENGTH.size:
        raise corrupt("the safetensors file ends inside its header")
    raw = file.read(0, _LENGTH.size + length)
    return parse_header(raw, body=file.size - len(raw), limits=limits)


def parse_header(raw: bytes, *, body: int, limits: Limits) -> Header:
    """The header in its bytes (length first) of a file with `body` bytes of weights."""
    try:
        found = parse_object(raw[_LENGTH.size :], most_pieces=_PIECES * (limits.max_tensors + 128))
    except TooManyPieces:
        raise too_many(
            f"the safetensors header names more than {limits.max_tensors} tensors"
        ) from None
    except BadJson as error:
        raise corrupt(f"the safetensors header {error}") from None
    metadata = _metadata(found.pop(_METADATA, None))
    if len(found) > limits.max_tensors:
        raise too_many(f"the safetensors header names more than {limits.max_tensors} tensors")
    entries = sorted((_entry(*item) for item in found.items()), key=lambda e: (e.start, e.end))
    _require_cover(entries, body)
    return Header(raw, tuple(entries), metadata)


def _metadata(found: Any) -> dict[str, str]:
    if found is None:
        return {}
    if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
        raise corrupt(f"{_METADATA} of the safetensors header is not text by name")
    return found


def _entry(name: str, found: Any) -> Entry:
    """One entry of the right types, whose bytes are what its shape needs."""
    if not isinstance(found, dict):
        raise _wrong(name, "is not described by an object")
    dtype, shape, offsets = (found.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str):
        raise _wrong(name, "has no dtype")
    if not isinstance(shape, list):
        raise _wrong(name, "has no shape")
    if not isinstance(offsets, list) or len(offsets) != 2 or count_bytes(offsets, 1) is None:
        raise _wrong(name, "has no place in the file")
    if dtype not in DTYPES:
        raise SourceError(
            "E_UNSUPPORTED",
            f"the tensor {_shown(name)} has numbers of the type {clean(dtype, limit=40)!r}",
            hint="save it in float32, float16 or bfloat16",
            stage="open",
        )
    size = count_bytes(shape, DTYPES[dtype])
    if size is None:
        raise _wrong(name, "has an impossible shape")
    start, end = offsets
    if end - start != size:
        raise _wrong(name, f"needs {size} bytes and is given {end - start}")
    return Entry(name, dtype, tuple(shape), start, end)


def _require_cover(entries: Iterable[Entry], body: int) -> None:
    """Every byte behind the header belongs to exactly one tensor."""
    end = 0
    for entry in entries:
        if entry.start != end:
            word = "overlaps the one before it" if entry.start < end else "comes after a hole"
            raise _wrong(entry.name, word)
        end = entry.end
    if end != body:
        missing = "is cut short" if end > body else "has bytes that belong to no tensor"
        raise corrupt(f"the safetensors file {missing}: {end} bytes are named, {body} are there")


def _shown(name: str) -> str:
    return repr(clean(name[:1000], limit=120))


def _wrong(name: str, fact: str) -> SourceError:
    return corrupt(f"in the safetensors header the tensor {_shown(name)} {fact}")


_TORCH = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I16": torch.int16,
    "U16": torch.uint16,
    "F32": torch.float32,
    "I32": torch.int32,
    "U32": torch.uint32,
    "F64": torch.float64,
    "I64": torch.int64,
    "U64": torch.uint64,
    "C64": torch.complex64,
}


def read_safetensors(
    file: RegularFile, access: Access, meter: Meter
) -> tuple[dict[str, torch.Tensor], Header, str]:
    """The tensors in the order of their data, the header, and the SHA-256 of the file."""
    header = read_header(file, access.limits)
    one_pass = OnePass(file, meter)
    one_pass.expect(header.raw)
    tensors = {entry.name: _tensor(entry, one_pass) for entry in header.entries}
    return tensors, header, one_pass.finish()


def _tensor(entry: Entry, one_pass: OnePass) -> torch.Tensor:
    try:
        raw = torch.empty(entry.end - entry.start, dtype=torch.uint8)
    except (MemoryError, RuntimeError):
        raise out_of_memory() from None
    one_pass.fill(raw.numpy().data)
    if entry.dtype == "BOOL" and bool((raw > 1).any()):  # torch takes any byte for a truth value
        name = clean(entry.name, limit=120)
        raise corrupt(f"the tensor {name!r} holds truth values besides 0 and 1")
    return raw.view(_TORCH[entry.dtype]).reshape(entry.shape)
