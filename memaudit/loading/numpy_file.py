"""Arrays of numpy: archives (.npz) and a convolution kernel in a file of its own (.npy)."""

from __future__ import annotations

import re
import struct
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from memaudit.errors import MemauditError, SourceError, clean, listed
from memaudit.loading.files import out_of_memory, read_regular
from memaudit.loading.formats import STORED, BadArchive, corrupt, count_bytes, refusal, unpacked

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from memaudit.loading.formats import Member

# -- The header of a numpy array: the one dictionary that numpy writes, read without evaluating it.

#: The lengths of 64 dimensions, with room to spare; numpy pads what it writes to some 128 bytes.
LONGEST_HEADER = 1 << 12
_MAGIC = b"\x93NUMPY"
_LENGTHS = {b"\1\0": struct.Struct("<H"), b"\2\0": struct.Struct("<I")}
#: `'descr': '<f4'`, `'fortran_order': False`, `'shape': (3, 4)`, in any order.
#: Python 2 wrote lengths as `3L`. Records have a list where others have their dtype.
_ENTRY = re.compile(
    r"""\s*(?P<mark>['"])(?P<key>descr|fortran_order|shape)(?P=mark)\s*:\s*(?:
        u?(?P<quote>['"])(?P<descr>[\w<>=|?]{1,32}(?:\[\w{1,16}\])?)(?P=quote)
        | (?P<record>\[)
        | (?P<order>True|False)
        | \(\s*(?P<lengths>(?:\d{1,20}L?\s*,\s*)*(?:\d{1,20}L?\s*)?)\)
    )\s*""",
    re.ASCII | re.VERBOSE,
)
_LENGTH = re.compile(r"\d+", re.ASCII)
_KINDS = {"descr": "descr", "fortran_order": "order", "shape": "lengths"}


class BadHeader(ValueError):  # noqa: N818
    """These bytes do not begin with the header of an array."""


class RecordHeader(ValueError):  # noqa: N818
    """The array holds records; `objects` says whether there seem to be Python objects in them."""

    def __init__(self, *, objects: bool) -> None:
        super().__init__("records")
        self.objects = objects


@dataclass(frozen=True, slots=True)
class ArrayHeader:
    """What stands before the numbers, and where they begin."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype
    start: int


def read_array_header(body: memoryview) -> ArrayHeader:
    """The header of an array in its bytes.

    numpy's own reader takes any Python literal, and a hundred times as long for one that
    Python 2 might have written; an archive may have a hundred thousand of them.
    """
    text, start = _text(body)
    found = _entries(text)
    lengths = found["shape"]
    numbers = _LENGTH.findall(lengths)
    padded = any(len(number) > 1 and number[0] == "0" for number in numbers)
    if padded or (len(numbers) == 1 and "," not in lengths):  # `(3)` is no tuple
        raise BadHeader
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old names of dtypes
            dtype = np.dtype(found["descr"])
    except (LookupError, OverflowError, SyntaxError, TypeError, ValueError):
        raise BadHeader from None
    shape = tuple(int(number) for number in numbers)
    return ArrayHeader(shape, found["fortran_order"] == "True", dtype, start)


def _text(body: memoryview) -> tuple[str, int]:
    """The dictionary as text, and where it ends; of a longer one no more than is allowed."""
    start = bytes(body[:12])
    form = _LENGTHS.get(start[6:8])
    if start[:6] != _MAGIC or form is None or len(start) < 8 + form.size:
        raise BadHeader
    begin = 8 + form.size
    (length,) = form.unpack_from(start, 8)
    if length > len(body) - begin:
        raise BadHeader
    return str(body[begin : begin + min(length, LONGEST_HEADER + 1)], "latin-1"), begin + length


def _entries(text: str) -> dict[str, str]:
    """The three values by their keys, as they are written."""
    at, found = 1, {}
    if text[:1] != "{":
        raise BadHeader
    while entry := _ENTRY.match(text, at):
        key, at = entry["key"], entry.end()
        if key == "descr" and entry["record"]:
            raise RecordHeader(objects="|O" in text)
        value = entry[_KINDS[key]]
        if value is None or key in found:
            raise BadHeader
        found[key] = value
        if text[at : at + 1] != ",":
            break
        at += 1
    rest = text[at:].strip()
    if len(found) != len(_KINDS) or rest != "}" or len(text) > LONGEST_HEADER:
        raise BadHeader
    return found


# -- A numpy archive of named arrays.

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
    groups = (("text", left_out), ("Python objects", objects))
    notes = [f"arrays of {what} were left out: {listed(names)}" for what, names in groups if names]
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
    return corrupt(f"the array {clean(name[:1000], limit=120)!r} is cut short or damaged")


def _objects(name: str) -> SourceError:
    return _refusal(
        "E_UNSAFE_FORMAT", name, "holds pickled Python objects (--allow-pickle leaves it out)"
    )


def _refusal(code: str, name: str, fact: str) -> SourceError:
    hint = "save arrays of numbers only, in float32 or float64"
    shown = repr(clean(name[:1000], limit=120))
    return refusal(code, f"the array {shown} {fact}", hint=hint)


# -- The kernel of a target functional in a file: .npy without pickles, or numbers as text.

#: A kernel has a number per step and pair of channels; two million of them fit.
LONGEST_KERNEL = 1 << 24
NUMPY = ".npy"


def read_kernel(path: Path) -> np.ndarray:
    """The numbers (T,…) of a kernel in float64, all of them finite."""
    try:
        data = read_regular(path, most=LONGEST_KERNEL)
        values = _array(data) if path.suffix.lower() == NUMPY else _table(data)
        if not values.size or not np.isfinite(values).all():
            raise _refused("E_CORRUPT", "the kernel is empty or holds numbers that are not finite")
    except MemauditError as error:
        raise error.at(path) from None
    return values


def _array(data: bytes) -> np.ndarray:
    body = memoryview(data)
    try:
        header = read_array_header(body)
    except RecordHeader:
        raise _refused("E_UNSUPPORTED", "the array holds records, not numbers") from None
    except BadHeader:
        raise _refused("E_CORRUPT", "this is no array of numpy") from None
    if header.dtype.hasobject:
        raise _refused("E_UNSAFE_FORMAT", "the array holds pickled Python objects")
    if header.dtype.kind not in "iuf" or len(header.shape) not in (1, 2, 3) or 0 in header.shape:
        raise _refused("E_UNSUPPORTED", "the array holds no real numbers of the form (T, M, D)")
    if count_bytes(header.shape, header.dtype.itemsize) != len(body) - header.start:
        raise _refused("E_CORRUPT", "the array is cut short or damaged")
    flat = np.frombuffer(body[header.start :], header.dtype)
    order = "F" if header.fortran else "C"
    return np.array(flat.reshape(header.shape, order=order), np.float64, order="C")


def _table(data: bytes) -> np.ndarray:
    """A line per step, numbers with commas, semicolons or blanks between them; # is a comment."""
    rows: list[list[float]] = []
    for number, line in enumerate(data.decode("utf-8", errors="replace").splitlines(), 1):
        words = line.partition("#")[0].replace(",", " ").replace(";", " ").split()
        try:
            row = [float(word) for word in words]
        except ValueError:
            fact = f"line {number} holds {clean(line, limit=40)!r}, which is no number"
            raise _refused("E_CORRUPT", fact) from None
        if rows and row and len(row) != len(rows[0]):
            raise _refused("E_CORRUPT", f"line {number} has other columns than the first")
        if row:
            rows.append(row)
    values = np.array(rows, np.float64)
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values


def _refused(code: str, fact: str) -> SourceError:
    hint = "give a .npy array of numbers, or a text with a line per step"
    return SourceError(code, fact, hint=hint, stage="target")
