"""Where the points of a figure lie: limits of its axes, round numbers on them, fewer points."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from memaudit.sections import Band

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from memaudit.sections import Figure, Line, Points

    Series = Line | Points | Band

#: The powers of ten that are drawn: subnormal numbers are noise, and 1e309 is no number.
LOWEST, HIGHEST = -300, 308
#: A logarithmic axis goes so many decades below the largest value of each series at most.
DEPTH = 18
#: A mark so many decades below everything else is left out: the curves would be squeezed.
NEAR = 2.0
#: Points beyond are not drawn in a square: nothing else would be seen in it.
FARTHEST = 1e6


def heights(series: Series) -> tuple[np.ndarray, ...]:
    """The values of a series that are drawn upwards: one array, two for a band."""
    found = (series.low, series.high) if isinstance(series, Band) else (series.y,)
    return tuple(np.asarray(values, dtype=np.float64) for values in found)


def drawable(figure: Figure, series: Series) -> list[tuple[np.ndarray, np.ndarray]]:
    """Points that the axes have room for; a height that they have none for is NaN, a gap."""
    x = np.asarray(series.x, dtype=np.float64)
    room = np.isfinite(x) & ((x > 0) | (not figure.x.log))
    found = []
    for values in heights(series):
        y = values[: len(x)]
        drawn = np.isfinite(y) & ((y > 0) | (not figure.y.log))
        if figure.square:
            drawn &= np.maximum(np.abs(x), np.abs(np.where(drawn, y, 0.0))) <= FARTHEST
        found.append((x[: len(y)][room[: len(y)]], np.where(drawn, y, np.nan)[room[: len(y)]]))
    return found


def is_empty(figure: Figure) -> bool:
    """Whether no series has anything to draw."""
    return not any(np.isfinite(y).any() for s in figure.series for _, y in drawable(figure, s))


def limits(figure: Figure) -> tuple[tuple[float, float], tuple[float, float]]:
    """The ends of both axes: round ones upwards, those of the data sideways."""
    pairs = [pair for series in figure.series for pair in drawable(figure, series)]
    known = [(x[np.isfinite(y)], y[np.isfinite(y)]) for x, y in pairs]
    known = [(x, y) for x, y in known if len(y)]
    if figure.square:
        sizes = [float(np.abs(np.concatenate(pair)).max()) for pair in known]
        radii = [abs(m.radius) for m in figure.marks if m.radius is not None and m.radius < 1e6]
        far = 1.05 * max([*sizes, *radii], default=1.0) or 1.0
        reach = math.ceil(far / _step(far, 10)) * _step(far, 10)
        return (-reach, reach), (-reach, reach)
    across = [float(end) for x, _ in known for end in (x.min(), x.max())]
    left, right = min(across, default=0.0), max(across, default=1.0)
    if left == right:
        left, right = (left, 10 * left) if figure.x.log else (left, left + 1.0)
    levels = [m.y for m in figure.marks if m.y is not None and math.isfinite(m.y)]
    if figure.y.log:
        lows = [max(float(y.min()), float(y.max()) * 10.0**-DEPTH) for _, y in known]
        tops = [float(y.max()) for _, y in known]
        low, high = min(lows, default=0.1), max(tops, default=1.0)
        near = [v for v in levels if low / 10**NEAR < v < high * 10**NEAR]
        return (left, right), powers([low, high, *near])
    ends = [float(end) for _, y in known for end in (y.min(), y.max())]
    low, high = min([*ends, *levels], default=0.0), max([*ends, *levels], default=1.0)
    if low == high:
        low, high = min(low, 0.0), max(high, 0.0) or 1.0
    step = _step(high - low, 6)
    return (left, right), (math.floor(low / step) * step, math.ceil(high / step) * step)


def colour_places(names: Sequence[str]) -> list[int]:
    """The number of the colour of every series; "impulse, fit" has that of "impulse"."""
    known: dict[str, int] = {}
    found = []
    for name in names:
        whole = next((w for w in known if name.startswith(f"{w}, ")), "")
        found.append(known[whole] if whole else known.setdefault(name, len(known)))
    return found


def powers(values: Iterable[float]) -> tuple[float, float]:
    """The whole powers of ten that enclose positive numbers."""
    seen = [v for v in values if 0 < v < math.inf]
    low = math.floor(math.log10(min(seen, default=0.1)) + 1e-9)
    low = min(max(low, LOWEST), HIGHEST - 1)
    high = math.ceil(math.log10(max(seen, default=1.0)) - 1e-9)
    return 10.0**low, 10.0 ** min(max(high, low + 1), HIGHEST)


def ticks(low: float, high: float, *, log: bool, most: int) -> list[float]:
    """Round numbers between two ends, at most about so many."""
    if log and high / low >= 100:
        first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
        stride = max(1, math.ceil((last - first) / max(most - 1, 1)))
        return [10.0**k for k in range(last, first - 1, -stride)][::-1]
    step = _step(high - low, most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{k * step:.12g}") for k in range(first, last + 1)]


def _step(width: float, most: int) -> float:
    """The smallest of 1, 2, 5 times a power of ten that is in a width `most` times at most."""
    rough = width / max(most, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    return next(f * power for f in (1, 2, 5, 10) if f * power >= rough * (1 - 1e-9))


def share(value: float, span: tuple[float, float], *, log: bool) -> float:
    """Where a number lies in a span, from 0 to 1."""
    low, high = span
    if log:
        return (math.log10(value) - math.log10(low)) / (math.log10(high) - math.log10(low))
    return (value - low) / (high - low)


def outline(values: np.ndarray, most: int, *, kept: Iterable[int] = ()) -> np.ndarray:
    """At most `most` places of a line that keep its shape: no peak and no dip is lost.

    Of every stretch between the places of `spread` the highest and the lowest point are taken,
    with the ends and the places in `kept`. A stretch with nothing but gaps keeps one of them.
    """
    y = np.asarray(values, dtype=np.float64)
    count = len(y)
    if count <= most:
        return np.arange(count)
    inside = sorted({place for place in kept if 0 <= place < count})[: most // 4]
    chosen = np.union1d(np.asarray(inside, dtype=np.int64), [0, count - 1])
    if most < len(chosen) + 2:
        return spread(count, most)
    starts = spread(count, (most - len(chosen)) // 2)
    known = np.isfinite(y)
    high = _farthest(np.maximum, np.where(known, y, -np.inf), starts)
    low = _farthest(np.minimum, np.where(known, y, np.inf), starts)
    return np.unique(np.concatenate([chosen, high, low]))


def spread(count: int, most: int) -> np.ndarray:
    """At most `most` of `count` places: a quarter at the start, then a geometric grid to the last.

    Curves bend at small x, and both scales, straight and logarithmic, need their points.
    """
    if count <= most:
        return np.arange(count)
    first = max(most // 4, 1)
    even = np.linspace(first, count - 1, max(most // 4, 1))
    later = np.geomspace(first, count - 1, max(most - first - len(even), 1))
    places = np.concatenate([np.arange(first), even, later, [count - 1]])
    found = np.unique(places.round().astype(np.int64))
    return found if len(found) <= most else np.delete(found, np.s_[1 : 1 + len(found) - most])


def _farthest(pick: np.ufunc, values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """The first place of the largest or smallest value of every stretch."""
    best = np.repeat(pick.reduceat(values, starts), np.diff(np.append(starts, len(values))))
    places = np.flatnonzero(values == best)
    stretch = np.searchsorted(starts, places, side="right")
    return places[np.diff(stretch, prepend=-1) > 0]


def circle(radius: float, points: int = 181) -> Iterator[tuple[float, float]]:
    """Points on a circle around 0."""
    for turn in np.linspace(0.0, 2.0 * math.pi, points).tolist():
        yield radius * math.cos(turn), radius * math.sin(turn)
