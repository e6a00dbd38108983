"""A numpy archive of named arrays."""

from __future__ import annotations

import io
import tokenize
import warnings
from typing import TYPE_CHECKING

import numpy as np
import torch

from memaudit.errors import SourceError, clean
from memaudit.loading.disk.regular_file import out_of_memory
from memaudit.loading.formats.archive import unpacked
from memaudit.loading.formats.shapes import count_bytes
from memaudit.loading.formats.zip_directory import BadArchive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memaudit.loading.formats.zip_directory import Member

#: What numpy's header parser was seen to raise.
_DAMAGE = (
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    OverflowError,
    RecursionError,
    SyntaxError,
    TypeError,
    ValueError,
    tokenize.TokenError,
)
#: The header's own limit in numpy is 10 000 characters.
_LONGEST_HEADER = 1 << 14
_LONGEST_TEXT = 20_000
_NUMBERS, _TEXT = "biufc", "US"


def read_npz(
    data: bytes, members: Sequence[Member]
) -> tuple[dict[str, torch.Tensor], dict[str, str], list[str]]:
    """The numeric arrays in file order, single strings as metadata, and notes on the rest."""
    tensors: dict[str, torch.Tensor] = {}
    metadata: dict[str, str] = {}
    left_out: list[str] = []
    for member in members:
        name = member.name.removesuffix(".npy")
        body = _bytes(data, member)
        shape, fortran, dtype, start = _header(name, body)
        if dtype.kind in _NUMBERS:
            tensors[name] = _tensor(name, body[start:], shape, dtype, fortran=fortran)
        elif not shape and dtype.itemsize <= _LONGEST_TEXT:
            metadata[name] = _string(name, body[start:], dtype)
        else:
            left_out.append(clean(name[:1000], limit=120))
    more = f" and {len(left_out) - 8} more" if len(left_out) > 8 else ""
    notes = [f"arrays of text were left out: {', '.join(left_out[:8])}{more}"] if left_out else []
    return tensors, metadata, notes


def _bytes(data: bytes, member: Member) -> memoryview:
    """The member's bytes: a view of those that are there, unless they are packed."""
    try:
        pieces = list(unpacked(data, member))
        return memoryview(pieces[0] if len(pieces) == 1 else b"".join(pieces))
    except MemoryError:
        raise out_of_memory() from None
    except BadArchive:
        raise _damaged(member.name) from None


def _header(name: str, body: memoryview) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    """Shape, order, dtype and where the numbers begin.

    Refuses Python objects, and shapes that do not fit the bytes that are there.
    """
    stream = io.BytesIO(body[:_LONGEST_HEADER])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # headers written by Python 2 are read with a warning
            version = np.lib.format.read_magic(stream)
            read = {
                (1, 0): np.lib.format.read_array_header_1_0,
                (2, 0): np.lib.format.read_array_header_2_0,
            }[version]
            shape, fortran, dtype = read(stream)
    except _DAMAGE:
        raise _damaged(name) from None
    start = stream.tell()
    if dtype.hasobject:
        raise _refusal("E_UNSAFE_FORMAT", name, "holds pickled Python objects")
    if dtype.kind not in _NUMBERS + _TEXT or dtype.subdtype is not None:
        raise _refusal("E_UNSUPPORTED", name, f"has the dtype {clean(dtype, limit=80)}")
    if count_bytes(shape, dtype.itemsize) != len(body) - start:
        raise _damaged(name)
    return shape, fortran, dtype, start


def _tensor(
    name: str, body: memoryview, shape: tuple[int, ...], dtype: np.dtype, *, fortran: bool
) -> torch.Tensor:
    """A copy of its own, in this machine's byte order and in rows."""
    try:
        flat = np.frombuffer(body, dtype) if len(body) else np.empty(0, dtype)
        array = flat.reshape(shape, order="F" if fortran else "C")
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


def _refusal(code: str, name: str, fact: str) -> SourceError:
    hint = "save arrays of numbers only, in float32 or float64"
    shown = repr(clean(name[:1000], limit=120))
    return SourceError(code, f"the array {shown} {fact}", hint=hint, stage="open")
