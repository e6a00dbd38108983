"""The ends of a set of numbers that only says what it holds."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

#: Sizes that are tried first, from 1e-12 to 1e12.
_SIZES = tuple(10.0 ** (k / 2) for k in range(-24, 25))
_TRIED = (-math.inf, *(-s for s in reversed(_SIZES)), 0.0, *_SIZES, math.inf)


@dataclass(frozen=True, slots=True)
class Ends:
    """The smallest interval around a set of numbers; `closed` says which ends belong to it."""

    low: float
    high: float
    closed: tuple[bool, bool]

    def __str__(self) -> str:
        left, right = "[" if self.closed[0] else "(", "]" if self.closed[1] else ")"
        return f"{left}{self.low:.7g}, {self.high:.7g}{right}"


def ends(holds: Callable[[float], bool]) -> Ends | None:
    """The ends to the last bit, None when no number that was tried is inside.

    Between numbers of float64 an open end cannot be told from a closed one beside it: the one of
    fewer digits is taken for the end.
    """
    inside = [holds(value) for value in _TRIED[1:-1]]
    if not any(inside):
        return None
    told = (False, *inside, False)
    neighbours = list(pairwise(zip(_TRIED, told, strict=True)))
    outer, inner = next((a, b) for (a, out), (b, there) in neighbours if there and not out)
    low, low_closed = _end(holds, inner, outer)
    inner, outer = next(
        (a, b) for (a, there), (b, out) in reversed(neighbours) if there and not out
    )
    high, high_closed = _end(holds, inner, outer)
    return Ends(low, high, (low_closed, high_closed))


def _end(holds: Callable[[float], bool], inside: float, outside: float) -> tuple[float, bool]:
    """The end between a number inside and one outside, and whether it is inside."""
    near, far = _rank(inside), _rank(outside)
    while abs(far - near) > 1:
        middle = (near + far) // 2
        near, far = (middle, far) if holds(_number(middle)) else (near, middle)
    last, first = _number(near), _number(far)
    return (last, True) if len(repr(last)) <= len(repr(first)) else (first, False)


def _rank(value: float) -> int:
    """The place of a number among all of float64: bisection needs at most 64 steps."""
    (bits,) = struct.unpack("<q", struct.pack("<d", value))
    return bits if bits >= 0 else -(bits & 0x7FFF_FFFF_FFFF_FFFF)


def _number(rank: int) -> float:
    (size,) = struct.unpack("<d", struct.pack("<q", abs(rank)))
    return size if rank >= 0 else -size
