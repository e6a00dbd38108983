"""Two reports of the same audit on two devices."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

#: Where the computer and the clock speak.
APART = ("timing", "device")
#: Sentences quote noise floors: those are roundings, and differ.
NUMBERS_IN_TEXT = ("message",)
ROUNDING, SMALLEST = 1e-6, 1e-9


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every plain value by the words and places that lead to it."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            if key not in APART:
                yield from leaves(inner, (*path, str(key)))
    elif path[-1:] != NUMBERS_IN_TEXT:
        yield path, value


def differences(one: Any, other: Any) -> list[tuple[str, Any, Any]]:
    """What differs by more than rounding, with its path and both values."""
    first, second = dict(leaves(one)), dict(leaves(other))
    return [
        ("/".join(path), first.get(path, "absent"), second.get(path, "absent"))
        for path in {**first, **second}
        if not _close(first.get(path, "absent"), second.get(path, "absent"))
    ]


def _close(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=ROUNDING, abs_tol=SMALLEST)
    return one == other
