"""The kernel of a target functional in a file: .npy without pickles, or numbers as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memaudit.errors import MemauditError, SourceError, clean
from memaudit.loading.disk.regular_file import read_regular
from memaudit.loading.formats.npy_header import BadHeader, RecordHeader, read_array_header
from memaudit.loading.formats.shapes import count_bytes

if TYPE_CHECKING:
    from pathlib import Path

#: A kernel has a number per step and pair of channels; two million of them fit.
LONGEST = 1 << 24
NUMPY = ".npy"


def read_kernel(path: Path) -> np.ndarray:
    """The numbers (T,…) of a kernel in float64, all of them finite."""
    try:
        data = read_regular(path, most=LONGEST)
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
