"""The curves of a report: one small plot per query, side by side where there is room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from memaudit.errors import clean
from memaudit.reports.curve_plot import floor_is_drawn, plot

if TYPE_CHECKING:
    from rich.console import RenderableType

    from memaudit.memory.result import Curve
    from memaudit.report import Report

#: From this width on two plots stand beside each other.
SIDE_BY_SIDE = 120
PLOT = 60
DEFAULT_NORMALIZATION = "iatn"


def plots(report: Report, *, width: int, ascii_only: bool = False) -> RenderableType:
    """Every curve of `report.memory` as a picture under its name."""
    columns = max(width // PLOT, 1) if width >= SIDE_BY_SIDE else 1
    room = min(PLOT, width) if columns == 1 else width // columns - 2
    room = max(min(room, PLOT), 24)
    pictures = [
        _picture(query, curve, width=room, ascii_only=ascii_only)
        for query, curve in report.memory.items()
    ]
    if columns == 1:
        return Group(*pictures)
    grid = Table.grid(padding=(0, 2, 0, 0))
    for start in range(0, len(pictures), columns):
        grid.add_row(*pictures[start : start + columns])
    return grid


def _picture(query: str, curve: Curve, *, width: int, ascii_only: bool) -> Text:
    title = f"{clean(query)}: memory by lag"
    if curve.normalization != DEFAULT_NORMALIZATION:
        title += f", normalised as {clean(curve.normalization)}"
    if floor_is_drawn(curve):
        title += f", dotted: floor {curve.floor:.0e}"
    lines = [title[:width], *plot(curve, width=width, ascii_only=ascii_only)]
    return Text("\n".join(lines), no_wrap=True, overflow="crop")
