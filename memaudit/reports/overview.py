"""The report on one screen: a picture, the verdicts, and a line for everything else."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group
from rich.text import Text

from memaudit.errors import clean
from memaudit.reports import wording
from memaudit.reports.facts import facts
from memaudit.reports.findings_list import LONGEST, STYLES
from memaudit.reports.headline import headline, memory_told, remembered
from memaudit.reports.overlay import COLOURS, floor, heard, letters, overlay
from memaudit.reports.plots import DEFAULT_NORMALIZATION
from memaudit.reports.summary import PARTIAL, percent, statuses, verdict_line
from memaudit.reports.tables import coloured, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.table import Table

    from memaudit.report import Finding, Report

#: Lines of a screen whose height nobody tells; more than this is too much for a summary.
SCREEN = 40
#: Heights of the picture.
LOWEST, HIGHEST = 4, 12
#: Lines around the picture: axis, lags and legend.
AROUND = 3
#: Wider pictures show nothing more.
WIDEST = 120
#: From this width on the table has all its columns.
ROOMY = 78
#: Below these widths its columns stand close together, and then without the half-life: words that
#: are folded letter by letter cannot be read.
CLOSE, SCARCE = 54, 50
REST = "--verbose shows the rest; memaudit explain CODE"
#: Findings that are told whatever the height is.
LEAST = 3


def overview_for(
    console: Console, report: Report, *, screen: int | None = None, ascii_only: bool = False
) -> Group:
    """The summary as wide as a console, and as high as the `screen` where there is one.

    Without a screen there is room for every word: what is too long is wrapped, not cut.
    """
    height = SCREEN if screen is None else screen - 2  # the command and the prompt
    lines = min(max(height, 20), SCREEN)
    wrap = screen is None
    return overview(report, width=console.width, lines=lines, ascii_only=ascii_only, wrap=wrap)


def overview(
    report: Report,
    *,
    width: int = 80,
    lines: int = SCREEN,
    ascii_only: bool = False,
    wrap: bool = False,
) -> Group:
    """The summary, in `lines` lines where that is possible; what is too long for them is cut.

    With `wrap` all of it goes on in the next line, and the summary may be longer.
    """
    blocks: dict[str, list[Text | Table]] = {
        "head": _head(report),
        "table": _table(report, width=width, ascii_only=ascii_only),
        "facts": _facts(report),
        "findings": _findings(report),
        "foot": _foot(report),
    }
    taken = sum(_height(block) for block in blocks.values()) + AROUND
    gaps = sum(1 for block in blocks.values() if block)
    tight = taken + gaps + LOWEST > lines  # a low screen is better full than spaced
    free = lines - taken - (0 if tight else gaps)
    height = min(max(free, LOWEST), HIGHEST)
    blocks["findings"] = _few(blocks["findings"], less=height - free)
    picture = _picture(report, width=min(width, WIDEST), height=height, ascii_only=ascii_only)
    shown = [block for block in (blocks.pop("head"), picture, *blocks.values()) if block]
    gap = [] if tight else [Text("")]
    parts = [part for place, block in enumerate(shown) for part in (gap * (place > 0)) + block]
    if wrap:
        return Group(*parts)
    return Group(*_cut(parts, width, spare=free - height, ascii_only=ascii_only))


def one_line(report: Report) -> str:
    """The verdict for scripts: source, the horizon of the model, kinds, how many findings."""
    partial = "" if report.complete else "partial report; "
    found = headline(report)
    lags = "" if found is None else remembered(found.curve)
    first = f"remembers {lags} ({clean(found.query)}); " if found is not None and lags else ""
    return f"{clean(report.subject.source)}: {partial}{first}{verdict_line(report)}"


def cut_to(text: Text, width: int, *, ascii_only: bool) -> Text:
    """A line that ends with an ellipsis where it is too long."""
    text.no_wrap, text.overflow = True, "crop"
    if cell_len(text.plain) <= width:
        return text
    dots = "..." if ascii_only else "…"
    kept = len(set_cell_size(text.plain, width - len(dots)).rstrip())
    shorter = text[:kept].append(dots)
    shorter.no_wrap, shorter.overflow = True, "crop"
    return shorter


def _cut(
    parts: Sequence[Text | Table], width: int, *, spare: int, ascii_only: bool
) -> Iterator[Text | Table]:
    """Lines that are too long go on as long as there are lines to spare, and are cut then."""
    for part in parts:
        if isinstance(part, Text) and cell_len(part.plain) > width:
            more = len(part.wrap(Console(width=width), width)) - 1
            if more <= spare:
                spare -= more
            else:
                part = cut_to(part, width, ascii_only=ascii_only)
        yield part


def _few(findings: list[Text | Table], *, less: int) -> list[Text | Table]:
    """Findings without so many of their lines, and how many those are."""
    kept = max(len(findings) - less - 1, LEAST)
    if less <= 0 or kept >= len(findings) - 1:
        return findings
    return [*findings[:kept], Text(f"... and {len(findings) - kept} more findings", style="dim")]


def _height(block: Sequence[Text | Table]) -> int:
    """Lines of a block; a table has a row a line under its head of two."""
    return sum(1 if isinstance(part, Text) else part.row_count + 2 for part in block)


def _head(report: Report) -> list[Text | Table]:
    subject = report.subject
    lines: list[Text | Table] = []
    if not report.complete:
        lines.append(Text(PARTIAL, style="bold red"))
    for error in report.errors:
        stage = f" ({error['stage']})" if error.get("stage") else ""
        told = f"{error.get('code', '')}{stage}: {error.get('message', '')}"
        lines.append(Text(clean(told), style="red"))
    lines.append(Text("memaudit ", style="bold").append(clean(subject.source)))
    what = clean(subject.description) or clean(subject.family)
    run = f"{subject.parameters:,} parameters, {percent(subject.coverage)} of them run"
    how = f"{clean(subject.dtype)} on {clean(subject.device)}"
    told = memory_told(report)
    verdict = [Text(f"Remembers {clean(told)}.", style="bold")] if told else []
    return [*lines, Text(what), Text(f"{run}, {how}"), *verdict]


def _picture(report: Report, *, width: int, height: int, ascii_only: bool) -> list[Text | Table]:
    drawn = overlay(report.memory, width=width, height=height, ascii_only=ascii_only)
    if not drawn:
        return []
    signs = letters(report.memory)
    names, still = [], []
    for place, (query, curve) in enumerate(report.memory.items()):
        if len(heard(curve)[0]):
            name = Text(signs[query], style=f"bold {COLOURS[place % len(COLOURS)]}")
            names.append(name.append(f" {clean(query, limit=24)}", "not bold default"))
        elif len(curve.values):
            told = "never above the floor" if curve.values.any() else "zero everywhere"
            still.append(f"; {clean(query, limit=24)}: {told}")
    kinds = dict.fromkeys(clean(c.normalization, limit=24) for c in report.memory.values())
    unit = "" if list(kinds) == [DEFAULT_NORMALIZATION] else f" ({', '.join(kinds)})"
    legend = Text(f"memory{unit}: ").append_text(Text(", ").join(names))
    if any(curve.horizon is not None for curve in report.memory.values()):
        legend.append("; horizons on the axis")
    if floor(report.memory) is not None:
        legend.append("; floor dotted")
    return [*drawn, legend.append("".join(still))]


def _table(report: Report, *, width: int, ascii_only: bool) -> list[Text | Table]:
    """A row a query; kind and window stand together, a power law is one inside its window only."""
    if not report.memory:
        return [Text("No curve was measured.")]
    roomy = width >= ROOMY
    halves = width >= SCARCE
    columns = ["query", "decay", "lags", *(["rate or exponent"] * roomy)]
    columns += [*(["half-life"] * halves), "horizon", *(["floor"] * roomy)]
    made = table(*columns, ascii_only=ascii_only, tight=width < CLOSE)
    for query, curve in report.memory.items():
        strength = [Text(wording.strength(curve))] if roomy else []
        made.add_row(
            Text(clean(query, limit=16)),
            coloured(clean(curve.decay.kind, limit=16)),
            Text(wording.window(curve)),
            *strength,
            *([wording.half_life(curve)] * halves),
            wording.horizon(curve),
            *([f"{curve.floor:.0e}"] if roomy else []),
        )
    told = [line for text in statuses(report) for line in text.plain.splitlines()]
    return [made, *(Text(line, style="dim") for line in told)]


def _facts(report: Report) -> list[Text | Table]:
    found = facts(report)
    wide = max(map(len, found), default=0) + 2
    return [
        Text(f"{key:<{wide}}", style="bold").append(told, "not bold") for key, told in found.items()
    ]


def _findings(report: Report) -> list[Text | Table]:
    """A line a code: what was found first, and how often."""
    if not report.findings:
        return [Text("no findings")]
    groups = groupby(report.findings, key=lambda finding: finding.code)
    return [_finding(list(same)) for _, same in groups]


def _finding(same: list[Finding]) -> Text:
    first = same[0]
    made = Text(f"{clean(first.code, limit=12)} {clean(first.severity, limit=12)}")
    made.stylize(STYLES.get(first.severity, ""))
    more = f" ({len(same)} places)" if len(same) > 1 else ""
    where = f"{clean(first.where, limit=24)}: " if first.where and len(same) == 1 else ""
    told = f" {clean(first.name, limit=40)}{more}: {where}{clean(first.message, limit=LONGEST)}"
    return made.append(told, "not bold default")


def _foot(report: Report) -> list[Text | Table]:
    keys = ("horizon", "seed", "level")
    how = [f"{key} {clean(report.settings[key])}" for key in keys if key in report.settings]
    seconds = sum(report.timing.values())
    how += [f"{seconds:.1f} s"] if report.timing else []
    lines = [", ".join(how)] if how else []
    return [Text(line, style="dim") for line in (*lines, REST)]
