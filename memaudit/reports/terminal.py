"""The report on a terminal: the verdict first, then the evidence, then the findings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rich.console import Console, Group
from rich.text import Text

from memaudit.contracts import AbstractReportFormat
from memaudit.precision.result import Precision
from memaudit.recall.result import Recall
from memaudit.reports.depth import depth_line, depth_table, spectrum_table
from memaudit.reports.findings_list import findings_list
from memaudit.reports.gradient_table import gradient_block
from memaudit.reports.linear_layers import linear_layers_lines, linear_layers_table
from memaudit.reports.plain_text import plain_text
from memaudit.reports.plots import plots
from memaudit.reports.precision_table import precision_block
from memaudit.reports.prediction_table import spectrum_lines
from memaudit.reports.recall_table import recall_block
from memaudit.reports.stability_table import stability_block
from memaudit.reports.summary import footer, header, layer_statuses, statuses
from memaudit.reports.tables import assumptions_table, layers_table, verdict_table
from memaudit.stability.result import Stability

if TYPE_CHECKING:
    from rich.console import RenderableType

    from memaudit.report import Report

WIDTH = 80


@dataclass(frozen=True, slots=True)
class Terminal(AbstractReportFormat):
    """The report for a person in front of a terminal, or in a log file."""

    name: ClassVar[str] = "terminal"
    summary: ClassVar[str] = "tables and curves for a terminal, as plain text in a file"
    suffix: ClassVar[str] = ".txt"

    def render(self, report: Report) -> str:
        """Plain text, 80 characters wide, without colours."""
        return plain_text(self.renderable(report, width=WIDTH), width=WIDTH)

    def print_to(self, console: Console, report: Report) -> None:
        """Show the report on a console, in its width and in letters that it can show."""
        console.print(self.for_console(console, report))

    def for_console(self, console: Console, report: Report) -> RenderableType:
        """The whole report for rich, as that console can show it."""
        ascii_only = not can_show_braille(console)
        return self.renderable(report, width=console.width, ascii_only=ascii_only)

    def renderable(
        self, report: Report, *, width: int = WIDTH, ascii_only: bool = False
    ) -> RenderableType:
        """The whole report for rich."""
        blocks: list[RenderableType] = [header(report)]
        if report.memory:
            table = verdict_table(report.memory, width=width, ascii_only=ascii_only)
            blocks += [_titled("Memory", table), *statuses(report)]
            blocks += [plots(report, width=width, ascii_only=ascii_only)]
        else:
            blocks += [Text("No curve was measured.")]
        if report.subject.whole and report.layers:
            table = depth_table(report, ascii_only=ascii_only)
            blocks += [_titled("Layers", table), depth_line(report), *layer_statuses(report)]
        elif len(report.layers) > 1:
            table = layers_table(report, ascii_only=ascii_only)
            blocks += [_titled("Layers", table), *layer_statuses(report)]
        if report.spectrum:
            table = spectrum_table(report.spectrum, ascii_only=ascii_only)
            blocks += [_titled("Spectrum", table), *spectrum_lines(report, ascii_only=ascii_only)]
        if report.closed_form:
            table = linear_layers_table(report.closed_form, ascii_only=ascii_only)
            blocks += [_titled("Linear layers", table), *linear_layers_lines(report.closed_form)]
        if isinstance(report.stability, Stability):
            blocks += [stability_block(report.stability, width=width, ascii_only=ascii_only)]
        if isinstance(report.precision, Precision):
            blocks += [precision_block(report.precision, ascii_only=ascii_only)]
        if report.gradient:
            blocks += [gradient_block(report.gradient, ascii_only=ascii_only)]
        if isinstance(report.recall, Recall):
            blocks += [recall_block(report.recall, ascii_only=ascii_only)]
        if report.assumptions:
            table = assumptions_table(report.assumptions, ascii_only=ascii_only)
            blocks += [_titled("Assumptions", table)]
        blocks += [_titled("Findings", findings_list(report)), footer(report)]
        spaced = [part for block in blocks for part in (block, Text(""))]
        return Group(*spaced[:-1])


def can_show_braille(console: Console) -> bool:
    """Whether the letters of the plots exist in the encoding of a console."""
    try:
        "⣿┤└─".encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return not console.legacy_windows


def _titled(title: str, body: RenderableType) -> Group:
    return Group(Text(title, style="bold underline"), body)
