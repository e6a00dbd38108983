"""How much of a large report is drawn: a page has at most five megabytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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

    def kept(self, count: int) -> np.ndarray:
        """The places of `count` points that are drawn."""
        return spread(count, self.points)

    def told(self, count: int) -> np.ndarray:
        """The places of `count` points that have a row in a table."""
        return spread(count, self.rows)


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


def partly(shown: int, count: int, noun: str) -> str:
    """What a caption adds where not everything is there."""
    return f"; {shown} of {count} {noun}, the JSON report has them all" if shown < count else ""
