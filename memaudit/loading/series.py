"""Numbers that a user gives: arrays, tables and sound as sequences, and the kernel of a target.

A file of several arrays has a sequence for every part of a host, under the name of the part.
"""

from __future__ import annotations

import struct
from array import array
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import numpy as np
import torch

from memaudit.errors import ArgumentError, MemauditError, clean, listed
from memaudit.interfaces import Series
from memaudit.loading.checkpoint import open_checkpoint
from memaudit.loading.files import read_regular
from memaudit.loading.formats import corrupt, read_npy, refusal

#: Files that hold a text; tables and arrays, and how they are read.
TEXTS = (".txt", ".md")
ARRAYS = (".npz", ".safetensors", ".pt")
KNOWN = (".npy", *ARRAYS, ".csv", ".wav", *TEXTS)
HINT = f"give {', '.join(KNOWN)}"
#: A table is read line by line in Python, some seconds for its largest size.
LARGEST, LARGEST_TABLE = 1 << 28, 1 << 25
#: A kernel has a number per step and pair of channels; two million of them fit.
LARGEST_KERNEL = 1 << 24
#: Batch, step, number.
MOST_AXES = 3


def read_data(source: Any) -> dict[str, Any]:
    """The option `data` as a setting: sequences of numbers, or the text of a text file."""
    path = Path(source) if isinstance(source, str | Path) else None
    if path is not None and path.suffix.lower() in TEXTS:
        return {"data": None, "text": path}
    return {"data": read_series(source if path is None else path)}


def read_series(source: Any) -> Series:
    """The sequences of a file, an array or a tensor; one sequence is a batch of one."""
    if not isinstance(source, Path):
        return _series("your data", torch.as_tensor(source))
    if not source.exists():
        raise ArgumentError("there is no such file of data", hint="check the path", source=source)
    try:
        return _series(clean(source.name), _read(source))
    except MemauditError as error:
        raise error.at(source) from None
    except (ValueError, EOFError, struct.error) as error:
        fact = f"the data cannot be read: {clean(error, limit=200)}"
        raise ArgumentError(fact, hint=HINT, source=source) from None


def whole_series(data: Series) -> Series:
    """The same for a model that runs as a whole, which takes one array of (B,T,D)."""
    if data.values is not None:
        return data
    if isinstance(data.given, torch.Tensor):
        raise _misshapen(data.given)
    fact = f"{len(data.given or ())} arrays are in {data.name} ({listed(data.given or ())})"
    raise ArgumentError(fact, hint="give a file with one array")


def _series(name: str, given: torch.Tensor | dict[str, torch.Tensor]) -> Series:
    if isinstance(given, dict):
        return Series(name, None, {part: shaped(values) for part, values in given.items()})
    _finite(given)
    # More axes, such as those of pictures, are for the forward of a module.
    return Series(name, None if given.ndim > MOST_AXES else shaped(given), given.detach())


def _read(path: Path) -> torch.Tensor | dict[str, torch.Tensor]:
    suffix = path.suffix.lower()
    if suffix in ARRAYS:
        found = {n: t for n, t in open_checkpoint(path).tensors.items() if t.ndim}
        if not found:
            raise ArgumentError("no array is in it", hint="give a file with one array")
        return next(iter(found.values())) if len(found) == 1 else found
    if suffix not in KNOWN:
        raise ArgumentError(f"data of the kind {clean(suffix) or 'none'} are unknown", hint=HINT)
    if suffix != ".wav":
        return torch.as_tensor(read_numbers(path, most=LARGEST))
    from scipy.io import wavfile

    sound = wavfile.read(BytesIO(read_regular(path, most=LARGEST)))[1]
    whole = np.iinfo(sound.dtype).max if sound.dtype.kind in "iu" else 1.0
    return torch.as_tensor(sound / whole)


def read_kernel(path: Path) -> np.ndarray:
    """The numbers (T,…) of a target's kernel in float64."""
    try:
        values = read_numbers(path, most=LARGEST_KERNEL)
        _require_finite(values, "the kernel has")
    except MemauditError as error:
        raise error.at(path) from None
    return values


def read_numbers(path: Path, *, most: int) -> np.ndarray:
    """The numbers of a .npy file, or of a table with a line per step, in float64."""
    if path.suffix.lower() == ".npy":
        return read_npy(read_regular(path, most=most))
    return _table(read_regular(path, most=min(most, LARGEST_TABLE)))


def _table(data: bytes) -> np.ndarray:
    """A line per step, numbers with commas, semicolons or blanks between them; # is a comment.

    A first line of names is passed over.
    """
    numbers, columns = array("d"), 0
    for place, line in enumerate(TextIOWrapper(BytesIO(data), "utf-8-sig", "replace"), 1):
        words = line.partition("#")[0].replace(",", " ").replace(";", " ").split()
        try:
            row = [float(word) for word in words]
        except ValueError:
            if place == 1 and all(word[0].isalpha() or word[0] in "_\"'" for word in words):
                continue
            fact = f"line {place} holds {clean(line[:80], limit=40)!r}, which is no number"
            raise corrupt(fact) from None
        if row and len(row) != (columns := columns or len(row)):
            raise corrupt(f"line {place} has other columns than the first")
        numbers.extend(row)
    if not numbers:
        raise corrupt("the table is empty")
    values = np.array(numbers).reshape(-1, columns)
    return values[:, 0] if columns == 1 else values


def _require_finite(values: np.ndarray, what: str) -> None:
    if not np.isfinite(values).all():
        fact = f"{what} numbers that are not finite"
        raise refusal("E_NONFINITE", fact, hint="replace or leave them out")


def shaped(values: torch.Tensor) -> torch.Tensor:
    """One array as sequences (B,T,D) of finite numbers in float64."""
    if not 1 <= values.ndim <= MOST_AXES:
        raise _misshapen(values)
    values = _finite(values)
    if values.ndim == 1:
        values = values[:, None]
    return values if values.ndim == MOST_AXES else values[None]


def _misshapen(values: torch.Tensor) -> ArgumentError:
    fact = f"the data have the shape {tuple(values.shape)} of {values.dtype}"
    return ArgumentError(fact, hint="give real numbers of the shape (T, D) or (B, T, D)")


def _finite(values: torch.Tensor) -> torch.Tensor:
    """The same in float64 on the CPU; refuses what is complex, empty or not finite."""
    if values.is_complex() or not values.numel() or not values.ndim:
        raise _misshapen(values)
    values = values.detach().cpu().double()
    _require_finite(values.numpy(), "the data have")
    return values
