"""Sequences of numbers that a user gives: arrays, tables and sound, as (B,T,D) in float64."""

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


def read_data(source: Any) -> dict[str, Any]:
    """The option `data` as a setting: sequences of numbers, or the text of a text file."""
    path = Path(source) if isinstance(source, str | Path) else None
    if path is not None and path.suffix.lower() in TEXTS:
        return {"data": None, "text": path}
    return {"data": read_series(source if path is None else path)}


def read_series(source: Any) -> Series:
    """The sequences of a file, an array or a tensor; one sequence is a batch of one."""
    if not isinstance(source, Path):
        return Series("your data", _shaped(torch.as_tensor(source)))
    try:
        values = _shaped(_read(source))
    except MemauditError as error:
        raise error.at(source) from None
    except (ValueError, EOFError, struct.error) as error:
        fact = f"the data cannot be read: {clean(error, limit=200)}"
        raise ArgumentError(fact, hint=HINT, source=source) from None
    return Series(clean(source.name), values)


def _read(path: Path) -> torch.Tensor:
    suffix = path.suffix.lower()
    if suffix in ARRAYS:
        found = {n: t for n, t in open_checkpoint(path).tensors.items() if t.ndim in (1, 2, 3)}
        if len(found) != 1:
            fact = f"{len(found)} arrays of one to three axes are in it ({listed(found)})"
            raise ArgumentError(fact, hint="give a file with one array")
        return next(iter(found.values()))
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


def _shaped(values: torch.Tensor) -> torch.Tensor:
    if values.is_complex() or not values.numel() or not 1 <= values.ndim <= 3:
        fact = f"the data have the shape {tuple(values.shape)} of {values.dtype}"
        raise ArgumentError(fact, hint="give real numbers of the shape (T, D) or (B, T, D)")
    values = values.detach().cpu().double()
    if not bool(torch.isfinite(values).all()):
        raise SourceError(
            "E_WEIGHTS",
            "the data have numbers that are not finite",
            hint="replace or leave them out",
        )
    if values.ndim == 1:
        values = values[:, None]
    return values if values.ndim == 3 else values[None]
