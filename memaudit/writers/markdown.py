"""A report as Markdown: a section for a model card."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, ClassVar

from memaudit.errors import clean
from memaudit.interfaces import AbstractReportFormat
from memaudit.writers.terminal import used_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memaudit.report import Finding, GateResult, Report
    from memaudit.sections import Document, Section, Table

#: Rows of a table, and places of one finding, that are printed; the JSON report has them all.
ROWS, PLACES = 12, 4


@dataclass(frozen=True, slots=True)
class Markdown(AbstractReportFormat):
    """Verdicts, findings, and what it takes to measure them again, under one heading."""

    name: ClassVar[str] = "markdown"
    summary: ClassVar[str] = "a section for a model card"
    suffix: ClassVar[str] = ".md"

    def render(self, report: Report) -> str:
        """Paragraphs and tables that GitHub and the hub show alike."""
        return render_document(report.document())


def render_document(document: Document, *, heading: str = "Memory audit") -> str:
    """Any document: sections with a headline have their table, the others a line each."""
    blocks: list[list[str]] = [[f"## {heading}"]]
    blocks += [[f"**{escaped(warning, limit=1200)}**"] for warning in document.warnings]
    about = "; ".join(f"{escaped(key)} {escaped(value)}" for key, value in document.facts[1:])
    first = f": {escaped(document.facts[0][1])}" if document.facts else ""
    blocks.append([f"**{escaped(document.title)}**{first}." + (f" {about}." if about else "")])
    shown = [section for section in document.sections if not section.detail]
    for section in shown:
        if section.headline:
            blocks += _headed(section)
    lines = [
        f"- {escaped(section.title)}: {escaped(section.line)}"
        for section in shown
        if section.line and not (section.headline and section.tables)
    ]
    blocks += [lines] if lines else []
    if document.findings is not None:
        blocks += [["### Findings"], _findings(document.findings)]
    if document.gates:
        blocks += [["### Gates"], [_gate(gate) for gate in document.gates]]
    if document.command or document.footer:
        blocks.append(["### Settings"])
        if document.command:
            blocks.append([f"<pre>{verbatim(document.command)}</pre>"])
        if document.footer:
            words = ", ".join(escaped(word) for word in document.footer)
            blocks.append([f"Measured with {words}."])
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _headed(section: Section) -> Iterator[list[str]]:
    yield [f"**{paragraph(section.headline)}**"]
    if section.under:
        yield [paragraph(section.under)]
    for table in section.tables[:1]:
        yield _table(table)
        more = len(table.rows) - ROWS
        if more > 0:
            yield [f"… and {more} more rows."]
        notes = [f"- {escaped(note)}" for note in table.notes]
        if notes:
            yield notes


def _table(table: Table) -> list[str]:
    """The lines of a table: its brief columns that have anything in them."""
    used = [i for i in used_columns(table) if table.columns[i].brief]
    rows = [[table.columns[i].name for i in used]]
    rows += [[row[i] for i in used] for row in table.texts()[:ROWS]]
    lines = [
        "| " + " | ".join(escaped(cell, limit=200) or " " for cell in row) + " |" for row in rows
    ]
    return [lines[0], "|" + "---|" * len(used), *lines[1:]]


def _findings(findings: Sequence[Finding]) -> list[str]:
    lines: list[str] = []
    for _, group in groupby(findings, key=lambda finding: (finding.code, finding.name)):
        same = list(group)
        first = same[0]
        title = f"{escaped(first.code)} {escaped(first.severity)}: {escaped(first.name)}"
        lines.append(f"- **{title}**")
        for finding in same[:PLACES]:
            where = f"{escaped(finding.where)}: " if finding.where else ""
            lines.append(f"  - {where}{escaped(finding.message)}")
        if len(same) > PLACES:
            lines.append(f"  - … and {len(same) - PLACES} more places")
        advice = dict.fromkeys(advised(f.advice) for f in same[:PLACES] if f.advice)
        lines += [f"  - *{text}*" for text in advice]
    return lines or ["None."]


def _gate(gate: GateResult) -> str:
    state = "**hit by**" if gate.hit else "not hit:" if gate.reason else "not hit"
    reason = f" {escaped(gate.reason)}" if gate.reason else ""
    return f"- --fail-on {escaped(gate.word)} was {state}{reason}"


# Foreign text inside Markdown stays text

#: Marks of Markdown, of its dialects on GitHub and on the hub, and of HTML; an underscore inside
#: of a word is none. Addresses are those that some dialects make links of by themselves.
_MARKS = re.compile(
    r"[\\`*\[\]<>#|~$&]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|(?<=[A-Za-z]):(?=//)|(?<=\bwww)\.|@",
    re.IGNORECASE,
)
#: What makes a list or a rule at the begin of a line.
_LEADING = re.compile(r"^(?:[-+=]|\d+(?P<mark>[.)])(?=\s|$))")
#: A command in an advice; what HTML would read stays text.
_COMMAND = re.compile(r"(`memaudit [^`<>&|]*`)")
_NAMED = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
LONGEST = 500


def escaped(text: object, *, limit: int = LONGEST) -> str:
    """Text that is shown as it is, on one line, inside of a paragraph or a table."""
    return _escaped(clean(text, limit=limit))


def _escaped(text: str) -> str:
    return _MARKS.sub(lambda match: entity(match[0]), text)


def verbatim(text: object) -> str:
    """A command inside of <pre>, where nothing but HTML is read: it can be copied as it stands."""
    return "".join(_NAMED.get(letter, letter) for letter in clean(text, limit=1500))


def advised(text: str) -> str:
    """The text of an advice: the commands in it are code, where nothing is read either."""
    pieces = _COMMAND.split(clean(text, limit=LONGEST))
    return "".join(piece if k % 2 else _escaped(piece) for k, piece in enumerate(pieces))


def paragraph(text: object) -> str:
    """Text that may begin a line."""
    return _LEADING.sub(lambda m: m[0][:-1] + entity(m[0][-1]), escaped(text, limit=1200))


def entity(letter: str) -> str:
    """A letter that is nothing but itself."""
    return _NAMED.get(letter, f"&#{ord(letter)};")
