"""Lists and arrays of a report file: what is not what it should be is refused, never bent."""

from __future__ import annotations

from typing import Any

import numpy as np

from memaudit.results.endless import unbounded

#: JSON holds integers of any size; arithmetic with those beyond this one fails somewhere later.
LARGEST = 2**63 - 1


def listed(values: Any) -> list[Any]:
    """A list as it is: a word or an object would be taken apart by whoever walks through it."""
    if not isinstance(values, list | tuple):
        raise TypeError(f"a list is expected, not {type(values).__name__}")
    return list(values)


def floats(values: Any) -> np.ndarray:
    """Numbers in a row; numpy would read words, truths and None as numbers, too."""
    found = np.asarray(_numbers(values, int, float), dtype=np.float64)
    if not np.isfinite(found).all():
        raise ValueError("a number is not finite")
    return found


def integers(values: Any) -> np.ndarray:
    """Whole numbers in a row; numpy would cut off what stands behind the point."""
    return np.asarray(_numbers(values, int), dtype=np.int64)


def lags_of(values: Any) -> np.ndarray:
    """Lags: whole numbers from 0 on, each larger than the one before."""
    lags = integers(values)
    if (np.diff(lags, prepend=-1) <= 0).any():
        raise ValueError("the lags do not rise from 0 on")
    return lags


def endless_floats(values: Any) -> np.ndarray:
    """Numbers in a row, among them the word for infinity."""
    return np.array([unbounded(value) for value in listed(values)], dtype=np.float64)


def alike(**rows: np.ndarray) -> None:
    """Refuse rows that belong together and are not as long as each other."""
    if len({len(row) for row in rows.values()}) > 1:
        told = ", ".join(f"{len(row)} {name}" for name, row in rows.items())
        raise ValueError(f"numbers that belong together differ in count: {told}")


def _numbers(values: Any, *kinds: type) -> list[Any]:
    found = listed(values)
    strange = set(map(type, found)) - set(kinds)
    if strange:
        told = ", ".join(sorted(kind.__name__ for kind in strange))
        raise TypeError(f"numbers are expected, not {told}")
    return found
