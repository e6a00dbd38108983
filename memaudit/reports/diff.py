"""What changed between two reports, on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from memaudit.errors import clean
from memaudit.reports.diff_sections import SECTIONS, section_blocks
from memaudit.reports.diff_table import told
from memaudit.reports.diff_verdict import sorted_findings, verdict_line
from memaudit.reports.findings_list import LONGEST, STYLES
from memaudit.reports.plain_text import plain_text
from memaudit.reports.summary import pairs
from memaudit.reports.tables import table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from memaudit.comparing.difference import Change, Difference

WIDTH = 80
#: A checksum is told by its beginning, as git does.
SHORT = 12
WARNING = "The settings differ: curves may not be comparable."
OTHER_MODEL = "Two different models are compared, not one before and after a change."
LEGEND = (
    "In the tables the row -> tells what is different after; an empty cell in it is as before, "
    "and - stands where a report has no value."
)


def diff_page(
    difference: Difference,
    *,
    before: str = "",
    after: str = "",
    verbose: bool = False,
    ascii_only: bool = False,
) -> RenderableType:
    """The whole difference for rich; `before` and `after` name the files."""
    blocks: list[list[RenderableType]] = [[_header(difference, before, after)]]
    for title, change in (("Subject", difference.subject), ("Settings", difference.settings)):
        blocks.append(_facts(title, change, verbose=verbose, ascii_only=ascii_only))
    blocks.append(_circumstances(difference))
    for section in SECTIONS:
        drawn = section_blocks(section, difference, verbose=verbose, ascii_only=ascii_only)
        blocks.append(drawn)
    blocks.append(_findings(difference.findings, verbose=verbose))
    spaced = [part for block in blocks if block for part in (*block, Text(""))]
    return Group(*spaced, Text(verdict_line(difference), style="bold"))


def diff_text(difference: Difference, *, verbose: bool = False) -> str:
    """The page as plain text, 80 characters wide, without colours."""
    return plain_text(diff_page(difference, verbose=verbose), width=WIDTH)


def _header(difference: Difference, before: str, after: str) -> Group:
    rows = {}
    for name, file, facts in (
        ("before", before, difference.subject.before),
        ("after", after, difference.subject.after),
    ):
        rows[name] = f"{(facts or {}).get('source', '')}" + (f" ({file})" if file else "")
    return Group(Text("memaudit diff", style="bold"), pairs(rows))


def _facts(title: str, change: Change, *, verbose: bool, ascii_only: bool) -> list[RenderableType]:
    """One row per fact that differs, or per fact."""
    before, after = change.before or {}, change.after or {}
    names = list(dict.fromkeys((*before, *after)))
    shown = names if verbose else list(change.differing)
    blocks: list[RenderableType] = [Text(title, style="bold underline")]
    if shown:
        made = table("", "before", "after", ascii_only=ascii_only)
        for name in shown:
            made.add_row(*map(Text, (_word(name), *both(name, before, after))))
        blocks.append(made)
    quiet = len(names) - len(change.differing)
    if quiet:
        blocks.append(Text(f"{quiet} fact{'s' if quiet > 1 else ''} unchanged"))
    return blocks


def _circumstances(difference: Difference) -> list[RenderableType]:
    """What makes numbers differ although the model may be the same."""
    lines: list[RenderableType] = []
    if difference.other_model:
        lines.append(Text(OTHER_MODEL, style="yellow"))
    if not difference.comparable:
        lines.append(Text(WARNING, style="yellow"))
    sections = difference.sections
    for side, facts, other in (
        ("before", sections.before or {}, sections.after or {}),
        ("after", sections.after or {}, sections.before or {}),
    ):
        only = [_word(name) for name in facts if facts[name] and not other.get(name)]
        if only:
            lines.append(Text(f"Measured only {side}: {', '.join(only)}."))
    change = difference.environment
    versions = [
        f"{clean(name)} {' -> '.join(both(name, change.before or {}, change.after or {}))}"
        for name in change.differing
    ]
    if versions:
        lines.append(Text(f"Environment: {', '.join(versions)}.", style="dim"))
    return [*lines, Text(LEGEND, style="dim")] if _two_rows(difference) else lines


def _two_rows(difference: Difference) -> bool:
    """Whether a table has a second row for something, with cells that may be empty."""
    changes = (change for section in SECTIONS for change in getattr(difference, section.field))
    return any(change.changed and not change.came and not change.went for change in changes)


def _findings(changes: tuple[Change, ...], *, verbose: bool) -> list[RenderableType]:
    if not changes:
        return []
    came, went, stayed = sorted_findings(changes)
    blocks: list[RenderableType] = [Text("Findings", style="bold underline")]
    for sign, listed in (("+", came), ("-", went), ("=", stayed if verbose else _regraded(stayed))):
        for change in listed:
            blocks += _finding(sign, change)
    if stayed:
        codes = ", ".join(dict.fromkeys(clean(change.name) for change in stayed))
        blocks.append(Text(f"{len(stayed)} stayed: {codes}"))
    return blocks


def _finding(sign: str, change: Change) -> list[RenderableType]:
    """Code, severity and name in a line, the message below it."""
    facts = change.after or change.before or {}
    severity = str(facts["severity"])
    was = str((change.before or facts)["severity"])
    graded = severity if was == severity else f"{was} -> {severity}"
    title = Text(f"{sign} ")
    title.append(f"{clean(change.name)} {clean(graded)}", style=STYLES.get(severity, ""))
    title.append(f" {clean(facts['name'])}")
    where = f"{clean(change.where)}: " if change.where else ""
    message = Text(where + clean(facts["message"], limit=LONGEST))
    return [title, Padding(message, (0, 0, 0, 4), expand=False)]


def _regraded(stayed: list[Change]) -> list[Change]:
    return [change for change in stayed if "severity" in change.differing]


def both(name: str, before: dict, after: dict) -> tuple[str, str]:
    """A fact of both reports in words; a checksum by its beginning."""
    words = [told(name, facts.get(name), 9) for facts in (before, after)]
    if name == "sha256" and words[0][:SHORT] != words[1][:SHORT]:
        words = [word[:SHORT] for word in words]
    return words[0], words[1]


def _word(name: str) -> str:
    return clean(name).replace("_", " ")
