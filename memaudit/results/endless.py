"""Infinity in a report: JSON has no number for it, so a word stands there."""

from __future__ import annotations

import math

ENDLESS = "infinite"


def bounded(value: float) -> float | str:
    """A number as JSON can hold it."""
    return ENDLESS if math.isinf(value) else float(value)


def unbounded(value: float | str) -> float:
    """The inverse of `bounded`."""
    return math.inf if value == ENDLESS else float(value)
