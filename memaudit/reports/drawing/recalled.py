"""R² by lag: which past inputs can be read back from the states."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memaudit.reports.drawing.label import label
from memaudit.reports.page.strokes import stroke
from memaudit.reports.placing import placed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from memaudit.recall.result import Recall

#: States that are drawn, those of the largest capacity.
DRAWN = 8


def draw_recall(axes: Axes, recall: Recall) -> None:
    """A colour a state; dotted the floor that was measured."""
    axes.set_title("Past inputs in the state")
    axes.set_xlabel("lag (steps)")
    axes.set_ylabel("R²")
    everything = [(part.where, d) for part in (recall, *recall.others) for d in part.decodings]
    kept = sorted(everything, key=lambda pair: -(pair[1].capacity or 0.0))[:DRAWN]
    for place, (where, item) in enumerate(kept):
        name = label(placed(where, item.state), limit=28)
        told = name if item.capacity is None else f"{name}, capacity {item.capacity:.3g}"
        colour = f"C{place % 10}"
        drawn = stroke(place, len(kept))
        width, alpha = 0.8 * drawn.width, drawn.opacity
        axes.plot(
            np.arange(len(item.values)),
            item.values,
            color=colour,
            label=told,
            lw=width,
            alpha=alpha,
        )
        if item.floor > 0:
            axes.axhline(item.floor, color=colour, ls=":", lw=1.0)
    axes.set_ylim(-0.02, 1.05)
    axes.grid(visible=True, alpha=0.25)
    axes.legend(fontsize="small")
