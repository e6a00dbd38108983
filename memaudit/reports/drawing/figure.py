"""A figure of a report: memory first, then whatever else was measured."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure

from memaudit.errors import ArgumentError, clean, nearest
from memaudit.recall.result import Recall
from memaudit.reports.drawing.eigenvalues import draw_eigenvalues
from memaudit.reports.drawing.label import label
from memaudit.reports.drawing.memory import draw_memory
from memaudit.reports.drawing.perturbation import draw_perturbation
from memaudit.reports.drawing.recalled import draw_recall
from memaudit.stability.result import Stability

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.axes import Axes

    from memaudit.report import Report

#: Width and height of one panel in inches.
PANEL = (6.6, 4.6)
#: A name is text: neither a program for TeX nor a formula.
PLAIN: dict[Any, bool] = {"text.usetex": False, "axes.unicode_minus": True}


class ReportFigure(Figure):
    """A figure that no window and no state of pyplot knows; a notebook shows it as it is."""

    def _repr_png_(self) -> bytes:
        sheet = BytesIO()
        self.savefig(sheet, format="png", dpi=96)
        return sheet.getvalue()


def figure(report: Report, *, queries: Sequence[str] | None = None) -> Figure:
    """Panels for the memory curves and for what else was measured, two side by side."""
    chosen = _chosen(report, queries)
    panels: list[Callable[[Axes], None]] = [lambda axes: draw_memory(axes, chosen)]
    if report.spectrum:
        panels.append(lambda axes: draw_eigenvalues(axes, report.spectrum))
    stability, recall = report.stability, report.recall
    if isinstance(stability, Stability):
        panels.append(lambda axes: draw_perturbation(axes, stability))
    if isinstance(recall, Recall) and any(p.decodings for p in (recall, *recall.others)):
        panels.append(lambda axes: draw_recall(axes, recall))
    columns = min(len(panels), 2)
    rows = -(-len(panels) // columns)
    with mpl.rc_context(PLAIN):
        made = ReportFigure(figsize=(PANEL[0] * columns, PANEL[1] * rows), layout="constrained")
        for place, draw in enumerate(panels, start=1):
            draw(made.add_subplot(rows, columns, place))
        partial = "" if report.complete else " (partial report)"
        made.suptitle(f"{label(report.subject.source)}{partial}")
    return made


def _chosen(report: Report, queries: Sequence[str] | None) -> dict:
    if queries is None:
        return dict(report.memory)
    names = [queries] if isinstance(queries, str) else list(queries)
    for name in names:
        if name not in report.memory:
            fact = f"the report has no query {clean(name)!r}"
            raise ArgumentError(fact, hint=nearest(str(name), report.memory))
    return {name: report.memory[name] for name in names}
