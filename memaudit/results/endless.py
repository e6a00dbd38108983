"""Infinity in a report: JSON has no number for it, so a word stands there."""

from __future__ import annotations

import math
from typing import Any

ENDLESS = "infinite"


def bounded(value: float) -> float | str:
    """A number as JSON can hold it."""
    return ENDLESS if math.isinf(value) else float(value)


def unbounded(value: Any) -> float:
    """The inverse of `bounded`; everything that it does not make is refused."""
    if value == ENDLESS:
        return math.inf
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"a number or {ENDLESS!r} is expected, not {type(value).__name__}")
    if not math.isfinite(value):
        raise ValueError(f"infinity is written {ENDLESS!r}, not {value}")
    return float(value)
