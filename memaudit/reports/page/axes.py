"""Axes and lines of a plot as plain data, as ECharts takes them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: Colours by name; the style sheet has them for light and dark pages.
COLOURS = ("$c1", "$c2", "$c3", "$c4", "$c5", "$c6", "$c7", "$c8")
#: The powers of ten that are drawn: subnormal numbers are noise, and 1e309 is no number.
LOWEST, HIGHEST = -300, 308
#: A logarithmic axis has at most so many parts.
TICKS = 7
#: Steps of the colour scale along the depth of a model.
DEPTHS = 12


def option(
    x: dict[str, Any], y: dict[str, Any], series: Sequence[dict[str, Any]], *, item: bool = False
) -> dict[str, Any]:
    """A plot with two axes; its script zooms both, but no axis of names."""
    pointer = {"type": "line", "lineStyle": {"color": "$soft"}, "label": {"show": False}}
    axis = {"trigger": "axis", "axisPointer": pointer}
    return {
        "animation": False,
        "grid": {"left": 58, "right": 18, "top": 14, "bottom": 46},
        "tooltip": {"trigger": "item"} if item else axis,
        "toolbox": _box(both=y["type"] != "category"),
        "xAxis": x,
        "yAxis": y,
        "series": list(series),
    }


def axis(name: str, *, gap: int, kind: str = "value", **more: Any) -> dict[str, Any]:
    """A straight axis with its name in the middle."""
    label = {"formatter": "power" if kind == "log" else "short", "hideOverlap": True}
    made = {"type": kind, "name": name, "nameLocation": "middle", "nameGap": gap}
    return {**made, "axisLabel": label, **more}


def below(name: str, low: float, high: float) -> dict[str, Any]:
    """A straight axis below a plot."""
    return axis(name, gap=28, min=low, max=max(high, low + 1))


def powers(name: str, values: Iterable[float], *, gap: int) -> dict[str, Any]:
    """A logarithmic axis that encloses the values with whole powers of ten."""
    low, high = decades(values)
    step = max(1, math.ceil((high - low) / TICKS))
    # Ticks are counted from the lower end: with whole steps the upper end is one, too.
    low = max(high - step * math.ceil((high - low) / step), LOWEST)
    return axis(name, gap=gap, kind="log", min=10.0**low, max=10.0**high, interval=step)


def decades(values: Iterable[float]) -> tuple[int, int]:
    """The powers of ten that enclose the positive ones of some values."""
    seen = [v for v in values if 0 < v < math.inf]
    if not seen:
        return -1, 0
    low = min(max(math.floor(math.log10(min(seen)) + 1e-9), LOWEST), HIGHEST - 1)
    return low, min(max(math.ceil(math.log10(max(seen)) - 1e-9), low + 1), HIGHEST)


def line(name: str, points: list[list[float]], colour: str, **more: Any) -> dict[str, Any]:
    """A line through points, without marks on them."""
    style = {"color": colour, "width": 2, **more.pop("lineStyle", {})}
    made = {"type": "line", "name": name, "data": points, "showSymbol": False, "symbol": "circle"}
    return {**made, "color": colour, "lineStyle": style, "emphasis": {"disabled": True}, **more}


def mark(name: str, points: list[list[float]], colour: str, kind: str) -> dict[str, Any]:
    """A straight line that tells no numbers of its own: a floor, a horizon, a radius."""
    style = {"width": 1.5, "type": kind}
    quiet = {"id": f"aux {name} {points[0]}", "silent": True, "z": 1}
    return line(name, points, colour, lineStyle=style, **quiet)


def pairs(x: np.ndarray, y: np.ndarray, *, positive: bool = True) -> list[list[float]]:
    """Points in five digits; on a logarithmic axis what is not positive is a gap."""
    found = []
    for one, other in zip(np.asarray(x).tolist(), np.asarray(y, float).tolist(), strict=False):
        drawn = math.isfinite(other) and (other > 0 or not positive)
        found.append([digits(one), digits(other) if drawn else None])
    return found


def digits(value: float, count: int = 5) -> float:
    """A number as short as a plot needs it."""
    return value if isinstance(value, int) else float(f"{value:.{count}g}")


def colour(place: int) -> str:
    """The colour of a curve; where there are many it begins again."""
    return COLOURS[place % len(COLOURS)]


def depth_colour(place: int, count: int) -> str:
    """The colour of a layer: from the first to the last along one scale."""
    return f"$d{round(place / max(count - 1, 1) * (DEPTHS - 1))}"


def _box(*, both: bool) -> dict[str, Any]:
    """The tool that zooms into a rectangle; it is always in hand, so it has no button."""
    tool = {"filterMode": "none", "icon": {"zoom": "path://", "back": "path://"}}
    tool["brushStyle"] = {"color": "$brush", "borderWidth": 0}
    return {
        "itemSize": 0,
        "showTitle": False,
        "feature": {"dataZoom": tool if both else {**tool, "yAxisIndex": False}},
    }
