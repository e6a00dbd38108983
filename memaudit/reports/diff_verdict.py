"""A whole difference in one sentence: the numbers that matter first, then what changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memaudit.comparing.difference import same
from memaudit.report import SEVERITIES
from memaudit.reports.diff_sections import SECTIONS
from memaudit.reports.diff_table import shift, value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memaudit.comparing.difference import Change, Difference

NOTHING = "no change"
UNKNOWN = "unknown"
OTHER = "two different models"
#: What is said of the whole model, and in which unit.
LEADING = {"horizon": ("horizon", "step"), "half_life": ("half-life", "step")}
LEADING["margin"] = ("smallest margin", "")


def verdict_line(difference: Difference) -> str:
    """The same sentence on a terminal, in its one line, and on top of the page."""
    if not difference.changed:
        return NOTHING
    parts = [
        OTHER if difference.other_model else "",
        ", ".join(_leading(difference.whole)),
        _findings(difference.findings),
        _changed(difference),
    ]
    return "; ".join(part for part in parts if part)


def sorted_findings(changes: Iterable[Change]) -> tuple[list[Change], list[Change], list[Change]]:
    """Those that came, that went, and that stayed."""
    listed = list(changes)
    came, went = [c for c in listed if c.came], [c for c in listed if c.went]
    return came, went, [c for c in listed if not c.came and not c.went]


def _leading(whole: Change) -> list[str]:
    """The horizon always, the other numbers where they differ and both reports have them."""
    before, after = whole.before or {}, whole.after or {}
    told = []
    for name, (word, unit) in LEADING.items():
        old, new = before.get(name), after.get(name)
        quiet = same(old, new) if old is not None else new is None
        if old is None and new is None:
            continue
        if name != "horizon" and (quiet or (not unit and None in (old, new))):
            continue
        told.append(f"{word} {_unchanged(old, unit) if quiet else _moved(old, new, unit)}")
    return told


def _unchanged(fact: object, unit: str) -> str:
    return f"{_in_units(_word(fact), unit)} as before"


def _moved(old: object, new: object, unit: str) -> str:
    """`132 -> 22 steps (-83 %)`; the unit stands once, behind the last number."""
    words = _word(old), _word(new)
    if words[0] == words[1]:
        words = value(old, 9), value(new, 9)
    if UNKNOWN in words:
        words = _in_units(words[0], unit), _in_units(words[1], unit)
        return " -> ".join(words)
    return f"{words[0]} -> {_in_units(words[1], unit)}{shift(old, new)}"


def _in_units(word: str, unit: str) -> str:
    if not unit or word == UNKNOWN:
        return word
    return f"{word} {unit}{'' if word == '1' else 's'}"


def _word(fact: object) -> str:
    return UNKNOWN if fact is None else value(fact)


def _findings(changes: tuple[Change, ...]) -> str:
    came, went, stayed = sorted_findings(changes)
    counts = {
        "new": len(came),
        "gone": len(went),
        "graver": sum(_risen(change) > 0 for change in stayed),
        "milder": sum(_risen(change) < 0 for change in stayed),
        "stayed": len(stayed),
    }
    listed = ", ".join(f"{number} {word}" for word, number in counts.items() if number)
    return f"findings: {listed}" if listed else ""


def _risen(change: Change) -> int:
    """By how many levels a finding that stayed is graver now; an unknown level is the least."""
    grades = [str((facts or {}).get("severity")) for facts in (change.before, change.after)]
    ranks = [SEVERITIES.index(grade) if grade in SEVERITIES else -1 for grade in grades]
    return ranks[1] - ranks[0]


def _changed(difference: Difference) -> str:
    told = [name for name in ("subject", "settings") if getattr(difference, name).changed]
    for section in SECTIONS:
        changes = getattr(difference, section.field)
        number = sum(change.changed for change in changes)
        if number:
            noun = section.noun if len(changes) == 1 else section.nouns
            told.append(f"{number} of {len(changes)} {noun}")
    if not told and difference.sections.changed:
        told = ["what was measured"]
    return f"changed: {', '.join(told)}" if told else ""
