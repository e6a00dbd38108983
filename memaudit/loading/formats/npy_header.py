"""The header of a numpy array: the one dictionary that numpy writes, read without evaluating it."""

from __future__ import annotations

import re
import struct
import warnings
from dataclasses import dataclass

import numpy as np

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
