"""A memory curve as a small drawing without a script: for cards and notebooks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from memaudit.reports.page.axes import decades
from memaudit.reports.page.curves import heard, is_heard, points
from memaudit.reports.page.detail import outline
from memaudit.reports.page.markup import Markup, tag

if TYPE_CHECKING:
    from memaudit.memory.result import Curve

WIDTH, HEIGHT, POINTS = 160, 36, 80
_SIZE = {
    **{"width": WIDTH, "height": HEIGHT},
    **{"preserveAspectRatio": "none", "aria_hidden": "true", "focusable": "false"},
}


def sparkline(curve: Curve, *, colour: str | None = None) -> Markup:
    """The curve over linear lags, logarithmic in height; hidden from screen readers."""
    path = _path(curve)
    if not path:
        return Markup("")
    stroke = {"stroke": colour} if colour else {}
    line = tag("path", d=path, fill="none", stroke_width="1.75", **stroke)
    box = f"0 0 {WIDTH} {HEIGHT}"
    return tag("svg", line, viewBox=box, **_SIZE)


def _path(curve: Curve) -> str:
    """Strokes above the floor, down to the bottom where the curve sinks into it, and no farther."""
    lags, values = points(curve)
    if not is_heard(curve):
        return ""
    low, high = decades(heard(curve))
    kept = outline(values, POINTS)
    across = max(lags[-1] - lags[0], 1)
    path, before = "", None
    for lag, value in zip(lags[kept].tolist(), values[kept].tolist(), strict=True):
        sunk = value <= max(0.0, curve.floor) or value < 10.0**low
        share = 1.0 if sunk else (high - max(math.log10(value), low)) / (high - low)
        x = 1 + (lag - lags[0]) / across * (WIDTH - 2)
        place = f"{x:.1f} {1 + max(share, 0.0) * (HEIGHT - 2):.1f}"
        if before is not None and not (sunk and before[1]):
            # A stroke that ends below the floor ends the line; the next one begins anew.
            path += f"L{place}" if path.endswith(before[0]) else f"M{before[0]}L{place}"
        before = place, sunk
    return path
