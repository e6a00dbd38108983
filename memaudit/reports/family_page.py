"""The report of a family on a terminal: members, curves, crossings, findings, the verdict."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from memaudit.errors import clean
from memaudit.reports.error_plot import ErrorPlot, error_plot, mark
from memaudit.reports.findings_list import findings_list
from memaudit.reports.plain_text import plain_text
from memaudit.reports.summary import PARTIAL, pairs
from memaudit.reports.tables import table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from memaudit.families.result import Crossing, FamilyReport

WIDTH = 80
PICTURE = 72


def family_page(
    report: FamilyReport, *, width: int = WIDTH, ascii_only: bool = False
) -> RenderableType:
    """The whole report for rich."""
    blocks: list[RenderableType] = [_header(report)]
    blocks += [_titled("Members", members_table(report, ascii_only=ascii_only))]
    if report.members:
        drawn = ErrorPlot(report.betas, [m.errors for m in report.members], report.scale)
        picture = error_plot(drawn, width=max(min(width, PICTURE), 40), ascii_only=ascii_only)
        title = "E_m(beta) over beta, a letter per member, dotted: size of the reference"
        blocks += [Text("\n".join([title[:width], *picture]), no_wrap=True, overflow="crop")]
    if report.crossings:
        blocks += [_titled("Crossings", crossings_table(report, ascii_only=ascii_only))]
    blocks += [_titled("Findings", findings_list(report)), _footer(report)]
    spaced = [part for block in blocks for part in (block, Text(""))]
    return Group(*spaced, Text(verdict_line(report), style="bold"))


def family_text(report: FamilyReport) -> str:
    """The page as plain text, 80 characters wide, without colours."""
    return plain_text(family_page(report), width=WIDTH)


def verdict_line(report: FamilyReport) -> str:
    """The whole report in one line."""
    return f"{report.verdict}: {report.reason}"


def members_table(report: FamilyReport, *, ascii_only: bool) -> Table:
    """One row per member, and the reference below them."""
    columns = ("", "m", "member", "E(0)", "largest weight", "margin", "over the edge at")
    made = table(*columns, ascii_only=ascii_only)
    for number, member in enumerate(report.members):
        made.add_row(
            mark(number),
            str(member.size),
            Text(clean(member.subject.source)),
            _number(member.start),
            _number(member.weight),
            _number(member.margin),
            "never" if member.radius == math.inf else _number(member.radius),
        )
    if report.against is not None:
        made.add_row("", "", Text(f"{clean(report.against.source)} (the reference)"))
    return made


def crossings_table(report: FamilyReport, *, ascii_only: bool) -> Table:
    """From which beta on the larger of two neighbours is worse."""
    made = table("m", "larger is worse from beta", "by seeds", "error", ascii_only=ascii_only)
    for crossing in report.crossings:
        made.add_row(
            f"{crossing.smaller} and {crossing.larger}",
            _where(crossing, float(report.betas[0])),
            _seeds(crossing),
            _number(crossing.error),
        )
    return made


def _header(report: FamilyReport) -> Group:
    lines: list[RenderableType] = []
    if not report.complete:
        lines.append(Text(PARTIAL, style="bold red"))
    lines.append(Text("memaudit ", style="bold").append(f"family of {len(report.members)}"))
    settings = report.settings
    rows = {
        "reference": f"{report.reference}, of size {report.scale:.3g}",
        "moves": f"{settings.get('group')} weights in the {settings.get('ball')} ball",
        "error": f"{settings.get('norm')} norm over {settings.get('steps')} steps",
        "size m": f"the number of {report.counted}",
    }
    return Group(*lines, pairs(rows))


def _footer(report: FamilyReport) -> Text:
    keys = ("draws", "ascent", "seeds", "seed")
    told = [f"{key} {clean(report.settings[key])}" for key in keys if key in report.settings]
    told += [f"{clean(key)} {value:.1f}" for key, value in report.timing.items()]
    versions = report.environment.items()
    told += [f"{clean(key)} {clean(value)}" for key, value in versions if key != "platform"]
    return Text(" | ".join(told), style="dim")


def _where(crossing: Crossing, first: float) -> str:
    if crossing.beta == 0:
        return "everywhere: no better unmoved"
    if not crossing.exists:
        return "no crossing"
    return f"below {_number(first)}" if crossing.beta <= first else _number(crossing.beta)


def _seeds(crossing: Crossing) -> str:
    low, high = crossing.interval
    if not low < math.inf or high == 0:
        return "-"
    ends = ("none" if end == math.inf else f"{end:.3g}" for end in (low, high))
    return "[{}, {}]".format(*ends)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _titled(title: str, body: RenderableType) -> Group:
    return Group(Text(title, style="bold underline"), body)
