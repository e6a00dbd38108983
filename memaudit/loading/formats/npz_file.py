"""A numpy archive of named arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from memaudit.errors import SourceError, clean, listed
from memaudit.loading.disk.regular_file import out_of_memory
from memaudit.loading.formats.archive import unpacked
from memaudit.loading.formats.npy_header import (
    ArrayHeader,
    BadHeader,
    RecordHeader,
    read_array_header,
)
from memaudit.loading.formats.shapes import count_bytes
from memaudit.loading.formats.zip_directory import STORED, BadArchive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memaudit.loading.formats.zip_directory import Member

_LONGEST_TEXT = 20_000
_NUMBERS, _TEXT = "biufc", "US"


def read_npz(
    data: bytes, members: Sequence[Member], *, allow_pickle: bool = False
) -> tuple[dict[str, torch.Tensor], dict[str, str], list[str]]:
    """The numeric arrays in file order, single strings as metadata, and notes on the rest.

    Arrays of Python objects are pickles: refused, or left out when the user allows that.
    """
    tensors: dict[str, torch.Tensor] = {}
    metadata: dict[str, str] = {}
    left_out: list[str] = []
    objects: list[str] = []
    for member in members:
        name = member.name.removesuffix(".npy")
        body = _bytes(data, member)
        try:
            header = _header(name, body)
        except SourceError as error:
            if error.code != "E_UNSAFE_FORMAT" or not allow_pickle:
                raise
            objects.append(clean(name[:1000], limit=120))
            continue
        if header.dtype.kind in _NUMBERS:
            tensors[name] = _tensor(name, body[header.start :], header)
        elif not header.shape and header.dtype.itemsize <= _LONGEST_TEXT:
            metadata[name] = _string(name, body[header.start :], header.dtype)
        else:
            left_out.append(clean(name[:1000], limit=120))
        del body  # before the next one is unpacked
    told = (("text", left_out), ("Python objects", objects))
    notes = [f"arrays of {what} were left out: {listed(names)}" for what, names in told if names]
    return tensors, metadata, notes


def _bytes(data: bytes, member: Member) -> memoryview:
    """The member's bytes: a view of those that are there, unless they are packed."""
    if member.method == STORED:
        return memoryview(data)[member.start : member.end]
    try:
        whole = memoryview(bytearray(member.size))
        at = 0
        for piece in unpacked(data, member):
            whole[at : at + len(piece)] = piece
            at += len(piece)
    except MemoryError:
        raise out_of_memory() from None
    except BadArchive:
        raise _damaged(member.name) from None
    return whole


def _header(name: str, body: memoryview) -> ArrayHeader:
    """Refuses Python objects, and shapes that do not fit the bytes that are there."""
    try:
        header = read_array_header(body)
    except BadHeader:
        raise _damaged(name) from None
    except RecordHeader as error:
        if error.objects:
            raise _objects(name) from None
        raise _refusal("E_UNSUPPORTED", name, "holds records") from None
    dtype = header.dtype
    if dtype.hasobject:
        raise _objects(name)
    if dtype.kind not in _NUMBERS + _TEXT:
        raise _refusal("E_UNSUPPORTED", name, f"has the dtype {clean(dtype, limit=80)}")
    if count_bytes(header.shape, dtype.itemsize) != len(body) - header.start:
        raise _damaged(name)
    return header


def _tensor(name: str, body: memoryview, header: ArrayHeader) -> torch.Tensor:
    """A copy of its own, in this machine's byte order and in rows."""
    dtype = header.dtype
    try:
        flat = np.frombuffer(body, dtype) if len(body) else np.empty(0, dtype)
        array = flat.reshape(header.shape, order="F" if header.fortran else "C")
        native = np.array(array, dtype=dtype.newbyteorder("="), order="C")
    except MemoryError:
        raise out_of_memory() from None
    except ValueError:  # more dimensions than this numpy has
        raise _damaged(name) from None
    if dtype.kind == "b" and bool((native.view(np.uint8) > 1).any()):
        raise _damaged(name)
    try:
        return torch.from_numpy(native)
    except TypeError:
        raise _refusal("E_UNSUPPORTED", name, f"has the dtype {dtype}") from None


def _string(name: str, body: memoryview, dtype: np.dtype) -> str:
    """A string by its own bytes: numpy makes text of any number, also of those that are none."""
    coding = "latin-1" if dtype.kind == "S" else f"utf-32-{'be' if dtype.str[0] == '>' else 'le'}"
    try:
        return bytes(body).decode(coding).rstrip("\0")
    except UnicodeDecodeError:
        raise _damaged(name) from None


def _damaged(name: str) -> SourceError:
    return SourceError(
        "E_CORRUPT",
        f"the array {clean(name[:1000], limit=120)!r} is cut short or damaged",
        hint="copy or download the file again",
        stage="open",
    )


def _objects(name: str) -> SourceError:
    return _refusal(
        "E_UNSAFE_FORMAT", name, "holds pickled Python objects (--allow-pickle leaves it out)"
    )


def _refusal(code: str, name: str, fact: str) -> SourceError:
    hint = "save arrays of numbers only, in float32 or float64"
    shown = repr(clean(name[:1000], limit=120))
    return SourceError(code, f"the array {shown} {fact}", hint=hint, stage="open")
