"""One line of the table, and how two ways of doing something are timed against each other."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Row:
    """One number: a ratio of two times of this run ("x"), a count, or an exponent.

    `limit` is the most that is wanted, None where the number is only told.
    """

    group: str
    name: str
    value: float
    unit: str = "x"
    limit: float | None = None
    note: str = ""


def best(works: Mapping[str, Callable[[], Any]], repeat: int) -> dict[str, float]:
    """The best seconds of every work; they take turns, so that noise hits all of them."""
    found = dict.fromkeys(works, math.inf)
    for _ in range(repeat):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            found[name] = min(found[name], time.perf_counter() - start)
    return found
