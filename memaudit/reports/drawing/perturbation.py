"""E(beta): how much the answers change when the weights move."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from memaudit.reports.drawing.bounds import within
from memaudit.reports.drawing.label import label
from memaudit.reports.page.strokes import stroke
from memaudit.reports.stability_table import radius

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from memaudit.stability.result import Stability

#: Errors so many times the size of the answers are not shown: the rest would be squeezed.
ABOVE = 100.0


def draw_perturbation(axes: Axes, item: Stability) -> None:
    """A colour a group of weights; upright its radius, dotted the size of the answers."""
    where = f" of {label(item.where, limit=24)}" if item.where else ""
    axes.set_title(f"E(β){where}")
    axes.set_xlabel(f"move β of the weights ({label(item.ball, limit=24)} ball)")
    axes.set_ylabel(f"error ({label(item.norm, limit=24)} norm)")
    axes.set_xscale("log")
    axes.set_yscale("log")
    seen: list[float] = []
    curves = [c for c in item.curves if c.ball == item.ball]
    for place, curve in enumerate(curves):
        colour = f"C{place % 10}"
        size = min(len(curve.betas), len(curve.errors))
        betas, errors = np.asarray(curve.betas[:size]), np.asarray(curve.errors[:size])
        shown = (betas > 0) & (errors > 0) & np.isfinite(errors)
        betas, errors = within(betas[shown]), within(errors[shown])
        seen += errors.tolist()
        told = f"{label(curve.group, limit=24)}: radius {radius(curve.radius)}"
        drawn = stroke(place, len(curves))
        width, alpha = 0.8 * drawn.width, drawn.opacity
        axes.plot(betas, errors, color=colour, label=told, lw=width, alpha=alpha)
        if 0 < curve.radius.value < math.inf:
            axes.axvline(float(within(curve.radius.value)), color=colour, ls="-.", lw=1.0)
    if not seen:
        axes.text(0.5, 0.5, "no error was seen", ha="center", transform=axes.transAxes)
        return
    if 0 < item.scale < math.inf:
        scale = float(within(item.scale))
        axes.axhline(scale, color="black", ls=":", lw=1.0, label="size of the answers")
        axes.set_ylim(top=ABOVE * max(scale, min(seen)))
    axes.grid(visible=True, alpha=0.25)
    axes.legend(fontsize="small")
