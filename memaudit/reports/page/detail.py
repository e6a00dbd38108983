"""How much of a large report is drawn: a page has at most five megabytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

#: A page has at most so many bytes, whatever the report is.
MOST_BYTES = 5_000_000


@dataclass(frozen=True, slots=True)
class Detail:
    """The most of everything: points of a line, rows of a table, lines of a plot, items of a list.

    `dots` are those of one plot of eigenvalues.
    """

    points: int
    rows: int
    lines: int
    items: int
    dots: int

    def kept(self, heights: np.ndarray, marks: Iterable[int] = ()) -> np.ndarray:
        """The places of a line's points that are drawn, those of `marks` among them."""
        return outline(heights, self.points, marks=marks)

    def told(self, count: int, marks: Iterable[int] = ()) -> np.ndarray:
        """The places of `count` points that have a row in a table, `marks` among them."""
        if count <= self.rows:
            return np.arange(count)
        chosen = _inside(marks, count, self.rows // 2)
        return np.union1d(spread(count, self.rows - len(chosen)), chosen)


#: The first of these at which a page is small enough is taken.
DETAILS = (
    Detail(points=1024, rows=256, lines=64, items=200, dots=2000),
    Detail(points=400, rows=96, lines=48, items=100, dots=1000),
    Detail(points=160, rows=48, lines=32, items=60, dots=400),
    Detail(points=60, rows=16, lines=12, items=24, dots=120),
    Detail(points=16, rows=6, lines=4, items=8, dots=30),
)


def spread(count: int, most: int) -> np.ndarray:
    """At most `most` of `count` places: a quarter at the start, then a geometric grid to the last.

    Curves bend at small lags, and both axes of lags, straight and logarithmic, need their points.
    """
    if count <= most:
        return np.arange(count)
    first = max(most // 4, 1)
    even = np.linspace(first, count - 1, max(most // 4, 1))
    later = np.geomspace(first, count - 1, max(most - first - len(even), 1))
    places = np.concatenate([np.arange(first), even, later, [count - 1]])
    found = np.unique(places.round().astype(np.int64))
    return found if len(found) <= most else np.delete(found, np.s_[1 : 1 + len(found) - most])


def outline(heights: np.ndarray, most: int, *, marks: Iterable[int] = ()) -> np.ndarray:
    """At most `most` places of a line that keep its shape: no peak and no dip is lost.

    Of every stretch between the places of `spread` the highest and the lowest point are kept, with
    the ends and `marks`. What is not positive has no place on a logarithmic axis: a stretch without
    anything else keeps one such point, so that the line has a gap there.
    """
    values = np.asarray(heights, dtype=np.float64)
    count = len(values)
    if count <= most:
        return np.arange(count)
    chosen = np.union1d(_inside(marks, count, most // 4), [0, count - 1])
    if most < len(chosen) + 2:
        return spread(count, most)
    starts = spread(count, (most - len(chosen)) // 2)
    positive = values > 0
    high = _farthest(np.maximum, np.where(positive, values, -np.inf), starts)
    low = _farthest(np.minimum, np.where(positive, values, np.inf), starts)
    return np.unique(np.concatenate([chosen, high, low]))


def partly(shown: int, count: int, noun: str, *, stored: int | None = None) -> str:
    """What a caption adds where not everything is there; a file may not have it all either."""
    if shown >= count:
        return ""
    known = "them all" if stored is None or stored >= count else f"{stored} of them"
    return f"; {shown} of {count} {noun}, the JSON report has {known}"


def _farthest(pick: np.ufunc, values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """The first place of the largest or smallest value of every stretch."""
    best = np.repeat(pick.reduceat(values, starts), np.diff(np.append(starts, len(values))))
    places = np.flatnonzero(values == best)
    stretch = np.searchsorted(starts, places, side="right")
    return places[np.diff(stretch, prepend=-1) > 0]


def _inside(marks: Iterable[int], count: int, most: int) -> np.ndarray:
    """Places that there are, at most so many of them."""
    return np.unique([mark for mark in marks if 0 <= mark < count][:most]).astype(np.int64)
