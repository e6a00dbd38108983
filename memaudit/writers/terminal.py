"""Reports on a terminal: a summary of one screen, the whole report, or one line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from io import StringIO
from itertools import groupby
from typing import TYPE_CHECKING, ClassVar

from rich.box import ASCII2, SIMPLE_HEAD
from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from memaudit.errors import clean
from memaudit.interfaces import AbstractReportFormat
from memaudit.report import SEVERITIES
from memaudit.sections import Beyond
from memaudit.writers.scales import is_empty
from memaudit.writers.text_plot import AROUND, plot

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import RenderableType

    from memaudit.report import Finding, Report
    from memaudit.sections import Document, Figure, Section, Table

WIDTH = 80
#: Lines of a screen whose height is not known; more than this is too much for a summary.
SCREEN = 40
#: Heights of the picture in a summary, and its widest width: wider pictures show nothing more.
LOWEST, HIGHEST, WIDEST = 4, 12, 120
#: Height of a picture in the whole report, and of a square one.
PICTURE, SQUARE = 10, 16
#: Rows of a table, and findings, that a summary has at most and at least.
ROWS, LEAST = 10, 3
#: So many places of one finding are printed; the JSON report has them all.
PLACES = 4
LONGEST = 1200
STYLES = {"error": "bold red", "warning": "yellow", "note": "cyan"}
#: Words in tables that are a verdict.
WORDS = {"fails": "yellow", "not measured": "dim", "hit": "red", "worse": "red", "better": "green"}
REST = "--verbose shows the rest"
#: An option and its value, which stand in one line; the sign between them while lines are made.
_OPTION = re.compile(r"(--[a-z-]+) (?=\S)")
_JOINT = "\ue000"


@dataclass(frozen=True, slots=True)
class Terminal(AbstractReportFormat):
    """The whole report for a person in front of a terminal, or in a log file."""

    name: ClassVar[str] = "terminal"
    summary: ClassVar[str] = "tables and curves for a terminal, as plain text in a file"
    suffix: ClassVar[str] = ".txt"

    def render(self, report: Report) -> str:
        """Plain text, 80 characters wide, without colours."""
        return plain_text(whole(report.document(), width=WIDTH), width=WIDTH)


def show(
    document: Document, console: Console, *, verbose: bool = False, screen: int | None = None
) -> str:
    """The summary, as high as the `screen` where there is one, or the whole report.

    As wide as the console, in its colours and in letters that it has. Without a screen what is too
    long is wrapped, not cut.
    """
    ascii_only = not can_show_braille(console)
    if verbose:
        page = whole(document, width=console.width, ascii_only=ascii_only)
    else:
        height = SCREEN if screen is None else screen - 2  # the command and the prompt
        lines = min(max(height, 20), SCREEN)
        wrap = screen is None
        page = brief(document, width=console.width, lines=lines, ascii_only=ascii_only, wrap=wrap)
    return _printed(page, console)


def one_line(report: Report) -> str:
    """The verdict for scripts: source, headlines, how many findings."""
    partial = "" if report.complete else "partial report; "
    return f"{clean(report.subject.source)}: {partial}{verdict_line(report.document())}"


def verdict_line(document: Document) -> str:
    """Headlines, the lines of the sections that have one, and how many findings there are."""
    words = [clean(line, limit=LONGEST).rstrip(".") for line in document.headlines]
    words += [clean(s.line, limit=LONGEST) for s in document.sections if s.headline and s.line]
    if document.findings is not None:
        words.append(counted(document.findings))
    return "; ".join(words)


def counted(findings: Iterable[Finding]) -> str:
    """`1 error, 2 warnings`, or `no findings`."""
    levels = [finding.severity for finding in findings]
    counts = {level: levels.count(level) for level in reversed(SEVERITIES)}
    words = [f"{n} {level}{'s' if n > 1 else ''}" for level, n in counts.items() if n]
    return ", ".join(words) or "no findings"


def can_show_braille(console: Console) -> bool:
    """Whether the letters of the plots exist in the encoding of a console."""
    try:
        "⣿┤└─".encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return not console.legacy_windows


def plain_text(page: RenderableType, *, width: int = WIDTH) -> str:
    """What rich would draw, without colours and without blanks at the ends of lines."""
    return _printed(page, Console(file=StringIO(), width=width, color_system=None, _environ={}))


def _printed(page: RenderableType, like: Console) -> str:
    """What a console would print; nothing is written to it."""
    text = StringIO()
    copy = Console(
        file=text,
        width=like.width,
        color_system=like.color_system or None,  # type: ignore[arg-type]
        no_color=like.no_color,
        force_terminal=like.is_terminal,
        force_jupyter=False,
        legacy_windows=False,
        highlight=False,
        _environ={},
    )
    copy.print(page)
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


# The whole report


def whole(document: Document, *, width: int = WIDTH, ascii_only: bool = False) -> Group:
    """Everything: facts, every section, findings and gates; the verdict stands at the end again."""
    head: list[RenderableType] = [*_warnings(document), _title(document)]
    head += [_pairs(document.facts), *_headlines(document)]
    blocks: list[RenderableType] = [Group(*head)]
    for section in document.sections:
        blocks.append(Group(*_section(section, width=width, ascii_only=ascii_only)))
    if document.findings is not None:
        groups = groupby(document.findings, key=lambda finding: (finding.code, finding.name))
        found = [_finding(list(same)) for _, same in groups] or [Text("none")]
        blocks.append(Group(_heading("Findings"), *found))
    if document.gates:
        gates = [
            Text(f"{clean(g.word)}: {'hit' if g.hit else 'not hit'}").append(
                f", {clean(g.reason, limit=LONGEST)}" if g.reason else ""
            )
            for g in document.gates
        ]
        blocks.append(Group(_heading("Gates"), *gates))
    if document.command:
        blocks.append(Group(_heading("Reproduce"), Text(clean(document.command, limit=LONGEST))))
    if document.footer:
        blocks.append(Text(" | ".join(map(clean, document.footer)), style="dim"))
    if verdict := verdict_line(document):
        blocks.append(Text(verdict, style="bold"))
    return Group(*[part for block in blocks for part in (block, Text(""))][:-1])


def _section(section: Section, *, width: int, ascii_only: bool) -> Iterator[RenderableType]:
    yield _heading(section.title)
    if section.line:
        yield Text(clean(section.line, limit=LONGEST))
    yield from (Text(clean(text, limit=LONGEST)) for text in section.text)
    for table in section.tables:
        yield Text("")
        if table.title:
            yield Text(clean(table.title), style="bold")
        yield _grid(table, width=width, ascii_only=ascii_only)
        words: dict[str, list[str]] = {}
        for column in table.columns:
            words.setdefault(clean(column.help), []).append(clean(column.name))
        help_ = [f"{', '.join(names)}: {text}" for text, names in words.items() if text]
        if help_:
            yield Text("; ".join(help_), style="dim")
        yield from (Text(clean(note, limit=LONGEST), style="dim") for note in table.notes)
    for figure in section.figures:
        yield Text("")
        yield Text(clean(figure.title), style="bold")
        height = SQUARE if figure.square else PICTURE
        yield from _drawn(figure, min(width, WIDEST), height, ascii_only=ascii_only)
        if figure.caption:
            yield Text(clean(figure.caption, limit=LONGEST), style="dim")


def _finding(same: list[Finding]) -> RenderableType:
    """Code, severity and name in a line, the places, messages and advice below it."""
    first = same[0]
    title = Text(f"{clean(first.code)} {clean(first.severity)}", style=STYLES[first.severity])
    title.append(f" {clean(first.name)}", "not bold default")
    body = []
    for finding in same[:PLACES]:
        where = f"{clean(finding.where)}: " if finding.where else ""
        body.append(Text(where + clean(finding.message, limit=LONGEST)))
    if len(same) > PLACES:
        body.append(Text(f"... and {len(same) - PLACES} more places"))
    for advice in dict.fromkeys(f.advice for f in same[:PLACES] if f.advice):
        body.append(Text(f"-> {clean(advice, limit=LONGEST)}", style="italic"))
    return Group(title, *(Padding(item, (0, 0, 0, 2), expand=False) for item in body))


def _heading(title: str) -> Text:
    return Text(clean(title), style="bold underline")


def _pairs(rows: Sequence[tuple[str, str]]) -> Grid:
    """Names and values in two columns; values are wrapped, never cut."""
    made = Grid.grid(padding=(0, 2, 0, 0))
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    for key, value in rows:
        made.add_row(Text(clean(key, limit=40)), Text(clean(value, limit=LONGEST)))
    return made


# One screen


def brief(
    document: Document,
    *,
    width: int = WIDTH,
    lines: int = SCREEN,
    ascii_only: bool = False,
    wrap: bool = False,
) -> Group:
    """The summary, in `lines` lines where that is possible; what is too long for them is cut.

    The first section with a headline shows its picture and table, the others have a line each. The
    advice for the gravest finding and the verdict stand at the end, and are never cut: they are on
    the screen when the command ends. The picture shrinks before findings do. With `wrap` all of it
    goes on in the next line, and the summary may be longer.
    """
    sections = [section for section in document.sections if not section.detail]
    first = next((s for s in sections if s.headline), sections[0] if sections else None)
    table = _brief_table(first, width=width, ascii_only=ascii_only, rows=ROWS) if first else []
    blocks: dict[str, list[Text | Grid]] = {
        "head": _head(document, width),
        "table": table,
        "lines": _lines([s for s in sections if s.line and not (s is first and table)]),
        "findings": _brief_findings(document.findings),
        "foot": _foot(document, width),
        "end": _end(document, width),
    }
    most = len(blocks["findings"])
    grave = sum(1 for _ in groupby(f.code for f in document.findings or () if f.severity != "note"))
    fewest = min(most, max(LEAST, grave) + 1)

    def taken(findings: int) -> int:
        return sum(map(_height, blocks.values())) - most + findings

    if taken(fewest) > lines and blocks["end"]:  # what stands at the end need not stand twice
        blocks["head"] = _head(document, width, brief=True)
    if first and table and (over := taken(fewest) - lines) > 0:
        rows = max(ROWS - over - 1, LEAST)
        blocks["table"] = _brief_table(first, width=width, ascii_only=ascii_only, rows=rows)
    # Where there is not even room for a low picture, there is none: words say more.
    around = AROUND if first and taken(fewest) + AROUND + LOWEST <= lines else None
    gaps = sum(1 for block in blocks.values() if block) - (around is None)
    least = taken(most) + (0 if around is None else around + LOWEST)
    tight = least + gaps > lines  # a low screen is better full than spaced
    free = lines - taken(most) - (around or 0) - (0 if tight else gaps)
    height = 0 if around is None else min(max(free, LOWEST), HIGHEST)
    blocks["findings"] = _few(blocks["findings"], less=height - free)
    picture: list[Text | Grid] = []
    if height:
        picture = _picture(first, width=min(width, WIDEST), height=height, ascii_only=ascii_only)
    shown = [block for block in (blocks.pop("head"), picture, *blocks.values()) if block]
    gap = [] if tight else [Text("")]
    parts = [part for place, block in enumerate(shown) for part in (gap * (place > 0)) + block]
    if wrap:
        return Group(*parts)
    return Group(*_cut(parts, width, spare=free - height, ascii_only=ascii_only))


def _head(document: Document, width: int, *, brief: bool = False) -> list[Text | Grid]:
    """Title, the first fact, as many others as fit a line, and the headlines; `brief` without."""
    facts = [f"{clean(key, limit=40)} {clean(value)}" for key, value in document.facts[1:]]
    first = [Text(clean(document.facts[0][1]))] if document.facts else []
    head: list[Text | Grid] = [*_warnings(document), _title(document), *first]
    if brief:
        return head
    fitting = [Text(words) for words in [_fitting(facts, "; ", width)] if words]
    return [
        *head,
        *fitting,
        *(line for text in _headlines(document) for line in _rows(text, width)),
    ]


def _end(document: Document, width: int) -> list[Text | Grid]:
    """The advice for the gravest finding, and the verdict."""
    made: list[Text | Grid] = []
    gravest = next((finding for finding in document.findings or () if finding.advice), None)
    if gravest is not None:
        words = f"-> {clean(gravest.code, limit=12)}: {clean(gravest.advice, limit=LONGEST)}"
        made += _rows(Text(words, style=STYLES[gravest.severity]), width)
    verdict = " ".join(clean(line, limit=LONGEST) for line in document.headlines)
    return [*made, *(_rows(Text(verdict, style="bold"), width) if verdict else [])]


def _rows(text: Text, width: int) -> list[Text | Grid]:
    """A text in the lines that it takes; an option stays with its value."""
    joined = Text(_OPTION.sub(f"\\1{_JOINT}", text.plain), style=text.style)
    lines = joined.wrap(Console(width=width), width)
    return [Text(line.plain.replace(_JOINT, " ").rstrip(), style=text.style) for line in lines]


def _warnings(document: Document) -> list[Text]:
    return [Text(clean(w, limit=LONGEST), style="bold red") for w in document.warnings]


def _title(document: Document) -> Text:
    return Text("memaudit ", style="bold").append(clean(document.title))


def _headlines(document: Document) -> list[Text]:
    return [Text(clean(line, limit=LONGEST), style="bold") for line in document.headlines]


def _picture(
    section: Section | None, *, width: int, height: int, ascii_only: bool
) -> list[Text | Grid]:
    figures = [f for f in (section.figures if section else ()) if not is_empty(f)]
    if not figures:
        return []
    return [*_drawn(figures[0], width, height, ascii_only=ascii_only)]


def _drawn(figure: Figure, width: int, height: int, *, ascii_only: bool) -> list[Text]:
    """The lines of a picture, which are never broken, and its legend, which is wrapped."""
    drawn = plot(figure, width=width, height=height, ascii_only=ascii_only)
    *picture, legend = drawn.split("\n")
    for line in picture:
        line.no_wrap, line.overflow = True, "crop"
    legend.no_wrap, legend.overflow = False, None
    return [*picture, legend]


def _brief_table(section: Section, *, width: int, ascii_only: bool, rows: int) -> list[Text | Grid]:
    """The first table of a section with a headline, and its notes."""
    if not section.headline or not section.tables:
        return []
    table = section.tables[0]
    made: list[Text | Grid] = [_grid(table, width=width, ascii_only=ascii_only, rows=rows)]
    if len(table.rows) > rows:
        made.append(Text(f"... and {len(table.rows) - rows} more: --verbose", style="dim"))
    return [*made, *(Text(clean(note, limit=LONGEST), style="dim") for note in table.notes)]


def _lines(sections: Sequence[Section]) -> list[Text | Grid]:
    """Name and line of every section."""
    names = [clean(section.title, limit=30).lower() for section in sections]
    wide = max(map(len, names), default=0) + 2
    return [
        Text(f"{name:<{wide}}", style="bold").append(clean(s.line, limit=LONGEST), "not bold")
        for name, s in zip(names, sections, strict=True)
    ]


def _brief_findings(findings: Sequence[Finding] | None) -> list[Text | Grid]:
    """A line a code: what was found first, and how often."""
    if findings is None:
        return []
    made: list[Text | Grid] = []
    for _, group in groupby(findings, key=lambda finding: finding.code):
        same = list(group)
        first = same[0]
        line = Text(f"{clean(first.code, limit=12)} {first.severity}", style=STYLES[first.severity])
        more = f" ({len(same)} places)" if len(same) > 1 else ""
        where = f"{clean(first.where, limit=24)}: " if first.where and len(same) == 1 else ""
        message = clean(first.message, limit=LONGEST)
        line.append(f" {clean(first.name, limit=40)}{more}: {where}{message}", "not bold default")
        made.append(line)
    return made or [Text("no findings")]


def _foot(document: Document, width: int) -> list[Text | Grid]:
    rest = f"{REST}; memaudit explain CODE" if document.findings else REST
    words = _fitting([clean(word) for word in document.footer], ", ", width)
    return [Text(line, style="dim") for line in (words, rest) if line]


def _fitting(words: Sequence[str], joint: str, width: int) -> str:
    """As many words as one line has room for."""
    kept: list[str] = []
    for word in words:
        if cell_len(joint.join([*kept, word])) > width:
            break
        kept.append(word)
    return joint.join(kept)


def _height(block: Sequence[Text | Grid]) -> int:
    """Lines of a block; a table has a row a line under its head of two."""
    return sum(1 if isinstance(part, Text) else part.row_count + 2 for part in block)


def _few(findings: list[Text | Grid], *, less: int) -> list[Text | Grid]:
    """Findings without so many of their lines, and how many those are."""
    kept = max(len(findings) - less - 1, LEAST)
    if less <= 0 or kept >= len(findings) - 1:
        return findings
    return [*findings[:kept], Text(f"... and {len(findings) - kept} more findings", style="dim")]


def _cut(
    parts: Sequence[Text | Grid], width: int, *, spare: int, ascii_only: bool
) -> Iterator[Text | Grid]:
    """Lines that are too long go on as long as there are lines to spare, and are cut then."""
    for part in parts:
        if isinstance(part, Text) and not part.no_wrap and cell_len(part.plain) > width:
            more = len(part.wrap(Console(width=width), width)) - 1
            if more <= spare:
                spare -= more
            else:
                part = _cut_to(part, width, ascii_only=ascii_only)
        yield part


def _cut_to(text: Text, width: int, *, ascii_only: bool) -> Text:
    """A line that ends with an ellipsis."""
    dots = "..." if ascii_only else "…"
    kept = len(set_cell_size(text.plain, width - len(dots)).rstrip())
    shorter = text[:kept].append(dots)
    shorter.no_wrap, shorter.overflow = True, "crop"
    return shorter


# Tables


def _grid(table: Table, *, width: int, ascii_only: bool, rows: int | None = None) -> Grid:
    """A table without the columns that have no room or nothing in them, the least needed first.

    Numbers stand to the right. What is too wide still is folded.
    """
    texts = [[clean(cell, limit=LONGEST) for cell in row] for row in table.texts()[:rows]]
    used = _fitting_columns(table, texts, width)
    gap = 2 if _table_width(table, texts, used, 2) <= width else 1
    made = Grid(
        box=ASCII2 if ascii_only else SIMPLE_HEAD,
        padding=(0, gap - 1, 0, 0),
        pad_edge=False,
        show_edge=False,
        header_style="bold",
    )
    for i in used:
        right = is_numeric(table, i)
        name = Text(clean(table.columns[i].name))
        made.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in texts:
        made.add_row(*(Text(row[i], style=WORDS.get(row[i], "")) for i in used))
    return made


def used_columns(table: Table) -> list[int]:
    """The columns that have anything in them, and the keys."""
    return [
        i
        for i, column in enumerate(table.columns)
        if column.key or not table.rows or any(row[i] not in ("", "-", None) for row in table.rows)
    ]


def is_numeric(table: Table, column: int) -> bool:
    """Whether a column holds numbers, or nothing."""
    cells = [row[column] for row in table.rows]
    plain = [isinstance(c, int | float | Beyond) and not isinstance(c, bool) for c in cells]
    return any(plain) and all(n or c is None for n, c in zip(plain, cells, strict=True))


def _fitting_columns(table: Table, texts: list[list[str]], width: int) -> list[int]:
    """The columns that are printed: those with anything in them, fewer where room is scarce.

    Columns that are not brief go first, the last one first.
    """
    used = used_columns(table)
    while _table_width(table, texts, used, 1) > width:
        extra = [i for i in used if not table.columns[i].brief]
        if not extra:
            break
        used.remove(extra[-1])
    return used


def _table_width(table: Table, texts: list[list[str]], used: Sequence[int], gap: int) -> int:
    wide = [
        max(cell_len(clean(table.columns[i].name)), *(cell_len(row[i]) for row in texts), 0)
        for i in used
    ]
    return sum(wide) + gap * max(len(wide) - 1, 0)
