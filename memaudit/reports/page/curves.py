"""Memory curves as lines: what is drawn of one, where its axis begins, and its fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from memaudit.memory.verdict import envelope
from memaudit.reports.curve_plot import floor_is_drawn
from memaudit.reports.page.axes import below, line, pairs, powers
from memaudit.reports.page.detail import Detail, partly
from memaudit.reports.page.table import Table, number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from memaudit.memory.result import Curve

#: An axis goes this far below the largest value at most, unless a curve is heard below that.
DECADES = 18
#: So few points are marked: between them nothing was measured.
FEW = 80


def points(curve: Curve) -> tuple[np.ndarray, np.ndarray]:
    """Lags and finite values."""
    values = np.asarray(curve.values, dtype=np.float64)
    lags = np.asarray(curve.lags)[: len(values)]
    finite = np.isfinite(values)
    return lags[finite], values[finite]


def drawn(curve: Curve, detail: Detail) -> list[list[float]]:
    """The points of a curve that are drawn: its shape, its horizon, the ends of its window."""
    lags, values = points(curve)
    kept = detail.kept(values, marks(curve, lags))
    return pairs(lags[kept], values[kept])


def marks(curve: Curve, lags: np.ndarray) -> list[int]:
    """The places of the lags that were concluded from a curve."""
    wanted = [lag for lag in (curve.horizon, *(curve.decay.window or ())) if lag is not None]
    return [int(place) for lag in wanted for place in np.flatnonzero(lags == lag)[:1]]


def shape(name: str, data: list[list[float]], hue: str, **more: Any) -> list[dict[str, Any]]:
    """The line of a curve, and dots where a single point stands alone: no line goes through it."""
    heights = [None, *(y for _, y in data), None]
    alone = [
        point
        for k, point in enumerate(data)
        if heights[k] is None and point[1] is not None and heights[k + 2] is None
    ]
    seen = {"showSymbol": True, "symbolSize": 4} if len(data) <= FEW else {}
    drawn_line = line(name, data, hue, **seen, **more)
    if not alone:
        return [drawn_line]
    dots = {"type": "scatter", "name": name, "id": f"aux alone {name}", "silent": True}
    style = {"symbolSize": 7, "itemStyle": {"color": hue}, "color": hue, "z": more.get("z", 3)}
    return [drawn_line, {**dots, **style, "data": alone}]


def counted(curves: Iterable[Curve], series: Iterable[dict[str, Any]]) -> tuple[int, int]:
    """How many points of some curves are drawn by their lines, and how many there are."""
    shown = sum(len(s["data"]) for s in series if s["type"] == "line")
    return shown, sum(len(points(curve)[0]) for curve in curves)


def lag_axis(curves: Iterable[Curve]) -> dict[str, Any]:
    """From the first lag to the last of some curves."""
    ends = [(int(lags[0]), int(lags[-1])) for c in curves if len(lags := points(c)[0])]
    low, high = min((a for a, _ in ends), default=0), max((b for _, b in ends), default=1)
    return below("lag (steps)", low, high)


def memory_axis(curves: Iterable[Curve], *, floors: bool = False) -> dict[str, Any]:
    """Powers of ten around the curves; what lies below their floors is noise."""
    return powers("memory", [v for c in curves for v in heard(c, floors=floors)], gap=42)


def heard(curve: Curve, *, floors: bool = False) -> list[float]:
    """The largest value and the smallest one above the floor, with the floor where it is near."""
    values = points(curve)[1]
    positive = values[values > 0]
    if not len(positive):
        return []
    above = positive[positive > curve.floor]
    least = float(above.min()) if len(above) else float(positive.min())
    most = float(positive.max())
    near = [curve.floor] if floors and floor_is_drawn(curve) else []
    return [max(least, most * 10.0**-DECADES), most, *near]


def is_heard(curve: Curve) -> bool:
    """Whether anything of a curve rises above its floor."""
    return bool((points(curve)[1] > max(0.0, curve.floor)).any())


def fit(curve: Curve) -> list[list[float]]:
    """The fitted decay over its window: C exp(-rate t) or C t^-exponent; empty for other kinds.

    A report holds rate or exponent. C is that of the envelope, which the fit was made to.
    """
    decay = curve.decay
    lags, values = points(curve)
    if decay.window is None or (decay.rate is None and decay.exponent is None):
        return []
    inside = (lags >= max(decay.window[0], 1)) & (lags <= decay.window[1])
    upper = envelope(values)[inside] if decay.kind != "growing" else values[inside]
    t, heights = lags[inside].astype(float), upper
    t, heights = t[heights > 0], heights[heights > 0]
    if len(t) < 2:
        return []
    fallen = decay.rate * t if decay.exponent is None else decay.exponent * np.log(t)  # type: ignore[operator]
    start = float(np.median(np.log(heights) + fallen))
    few = np.unique(np.linspace(0, len(t) - 1, 40).round().astype(int))
    with np.errstate(over="ignore"):
        return pairs(t[few], np.exp(start - fallen[few]))


def curves_table(caption: str, curves: Mapping[str, Curve], detail: Detail) -> Table:
    """Lags below each other, curves side by side."""
    listed = list(curves.items())[: detail.lines]
    lags = _all_lags([points(c)[0] for _, c in listed])
    told = lags[detail.told(len(lags), [k for _, c in listed for k in marks(c, lags)])]
    columns = [_at(c, told) for _, c in listed]
    rows = [
        (str(lag), *(number(column[k]) for column in columns))
        for k, lag in enumerate(told.tolist())
    ]
    more = partly(len(told), len(lags), "lags")
    return Table(caption + more, ("lag", *(name for name, _ in listed)), rows, dense=True)


def _all_lags(listed: list[np.ndarray]) -> np.ndarray:
    """Every lag of some curves; mostly they have the same."""
    if not listed:
        return np.zeros(0, int)
    first = listed[0]
    if all(np.array_equal(first, other) for other in listed[1:]):
        return first
    return np.unique(np.concatenate(listed))


def _at(curve: Curve, told: np.ndarray) -> list[float | None]:
    """The values of a curve at some lags, None where it has none."""
    lags, values = points(curve)
    inside = np.isin(lags, told)
    known = dict(zip(lags[inside].tolist(), values[inside].tolist(), strict=True))
    return [known.get(lag) for lag in told.tolist()]
