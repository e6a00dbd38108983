"""The report as a picture; matplotlib is an extra, and is imported when something is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, ClassVar

from memaudit.errors import clean
from memaudit.extras import needs
from memaudit.interfaces import AbstractReportFormat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from memaudit.report import Report


@dataclass(frozen=True, slots=True)
class Picture(AbstractReportFormat):
    """The first figure of every section as SVG."""

    name: ClassVar[str] = "figure"
    summary: ClassVar[str] = "the figures of the report as SVG (extra: plot)"
    suffix: ClassVar[str] = ".svg"

    def draw(self, report: Report, series: Sequence[str] | None = None) -> Figure:
        """The matplotlib figure, of these series or of all."""
        with needs("matplotlib", extra="plot"):
            from memaudit.writers.figure import figure
        return figure(report.document(), series=series)

    def render(self, report: Report) -> str:
        """The figure as SVG, which says the verdicts in its description."""
        made, file = self.draw(report), StringIO()
        from matplotlib import rc_context

        lines = [section.line for section in report.sections() if section.line]
        about = {
            "Date": None,
            "Title": clean(report.subject.source),
            "Description": "; ".join(lines),
        }
        # Names stay text, and the ids of shapes are no random numbers.
        with rc_context({"svg.hashsalt": "memaudit", "svg.fonttype": "none"}):
            made.savefig(file, format="svg", metadata=about)
        return file.getvalue()
