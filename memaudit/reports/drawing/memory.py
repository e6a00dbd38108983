"""Memory curves on logarithmic axes, with floor, window, fit and horizon."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memaudit.reports import wording
from memaudit.reports.curve_plot import floor_is_drawn
from memaudit.reports.drawing.bounds import within
from memaudit.reports.drawing.label import label
from memaudit.reports.page.curves import fit, heard, points
from memaudit.reports.page.strokes import stroke

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes

    from memaudit.memory.result import Curve
    from memaudit.reports.page.strokes import Stroke

#: Room below and above what is heard.
BELOW, ABOVE = 0.2, 3.0
#: A floor further below all that is heard is out of the picture: the curves would be squeezed.
NEAR = 0.01


def draw_memory(axes: Axes, curves: Mapping[str, Curve]) -> None:
    """A colour a query: line the memory, dashes the fit over its window, upright the horizon.

    Lags are logarithmic from 1 on; lag 0 stands left of it.
    """
    axes.set_title("Memory by lag")
    axes.set_xlabel("lag (steps)")
    axes.set_ylabel("memory")
    axes.set_yscale("log")  # first: on a straight axis the largest numbers have no room
    drawn = {query: curve for query, curve in curves.items() if heard(curve)}
    for place, (query, curve) in enumerate(drawn.items()):
        _draw(axes, query, curve, f"C{place % 10}", stroke(place, len(drawn)))
    silent = [label(query, limit=24) for query in curves if query not in drawn]
    if silent:
        axes.plot([], [], " ", label=f"nothing to see: {', '.join(silent)}")
    if not drawn:
        axes.text(0.5, 0.5, "no curve to draw", ha="center", transform=axes.transAxes)
        return
    levels = [level for curve in drawn.values() for level in within(heard(curve)).tolist()]
    shown = [float(within(c.floor)) for c in drawn.values() if floor_is_drawn(c)]
    floors = [floor for floor in shown if floor > NEAR * min(levels)]
    axes.set_ylim(BELOW * min(*levels, *floors), ABOVE * max(levels))
    axes.set_xscale("symlog", linthresh=1, linscale=0.3)
    last = max(int(points(curve)[0][-1]) for curve in drawn.values())
    first = min(int(points(curve)[0][0]) for curve in drawn.values())
    axes.set_xlim(left=first - 0.1, right=max(last, 1) * 1.05)
    axes.grid(visible=True, alpha=0.25)
    axes.legend(fontsize="small", loc="lower left")


def _draw(axes: Axes, query: str, curve: Curve, colour: str, drawn: Stroke) -> None:
    lags, values = points(curve)
    told = f"{label(query, limit=24)}: {label(curve.decay.kind, limit=16)}"
    strength = wording.strength(curve)
    told += "" if strength == wording.NOTHING else f", {strength}"
    told += f", horizon {wording.horizon(curve)}"
    shown = within(values)
    few = "." if np.count_nonzero(values > curve.floor) < 3 else ""  # a line needs two points
    width, alpha = 0.8 * drawn.width, drawn.opacity
    axes.plot(lags, shown, color=colour, label=told, marker=few, lw=width, alpha=alpha)
    line = fit(curve)
    if line:
        fitted = [lag for lag, _ in line], within([height or 0.0 for _, height in line])
        axes.plot(*fitted, color="black", ls=(0, (4, 3)), lw=1.2, zorder=3)
    if line and curve.decay.window is not None:
        axes.axvspan(*curve.decay.window, color=colour, alpha=0.06, lw=0)
    if curve.horizon is not None:
        axes.axvline(curve.horizon, color=colour, ls="-.", lw=1.0)
    if floor_is_drawn(curve):
        axes.axhline(float(within(curve.floor)), color=colour, ls=":", lw=1.0)
