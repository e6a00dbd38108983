"""Sequences of numbers that a user gives: arrays, tables and sound, as (B,T,D) in float64.

A file of several arrays has a sequence for every part of a host, under the name of the part.
"""

from __future__ import annotations

import struct
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch

from memaudit.errors import ArgumentError, MemauditError, SourceError, clean, listed
from memaudit.interfaces import Series
from memaudit.loading.checkpoint import open_checkpoint
from memaudit.loading.files import read_regular

#: Files that hold a text; tables and arrays, and how they are read.
TEXTS = (".txt", ".md")
ARRAYS = (".npz", ".safetensors", ".pt")
KNOWN = (".npy", *ARRAYS, ".csv", ".wav", *TEXTS)
HINT = f"give {', '.join(KNOWN)}"
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
    file = BytesIO(read_regular(path))
    if suffix == ".npy":
        return torch.as_tensor(np.load(file, allow_pickle=False))
    if suffix == ".csv":
        return torch.as_tensor(_table(file))
    from scipy.io import wavfile

    sound = wavfile.read(file)[1]
    whole = np.iinfo(sound.dtype).max if sound.dtype.kind in "iu" else 1.0
    return torch.as_tensor(sound / whole)


def _table(file: BytesIO) -> np.ndarray:
    """Numbers with commas between them; a first line of names is passed over."""
    first = file.readline().decode("utf-8", errors="replace")
    try:
        [float(word) for word in first.split(",")]
    except ValueError:
        pass
    else:
        file.seek(0)
    return np.loadtxt(file, delimiter=",", ndmin=2)


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
    if not bool(torch.isfinite(values).all()):
        raise SourceError(
            "E_WEIGHTS",
            "the data have numbers that are not finite",
            hint="replace or leave them out",
        )
    return values
