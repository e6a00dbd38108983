"""Whether a rule could tell: what it needs beside what a report has measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memaudit import registry
from memaudit.catalog import BUILT_IN
from memaudit.errors import MachineError
from memaudit.rule import FAMILY

if TYPE_CHECKING:
    from memaudit.contracts import AbstractRule
    from memaudit.report import Report


def field_of(probe: str) -> str:
    """The field of the report that one of our probes fills; it is called like the probe."""
    return probe.replace("-", "_")


def queries_of(report: Report) -> tuple[str, ...]:
    """The queries that have an answer; in a whole report that is every one that could be asked."""
    asked = _named(report, "queries") if report.complete else ()
    mute = [query for query, curve in report.memory.items() if not len(curve.values)]
    return tuple(q for q in dict.fromkeys((*asked, *report.memory)) if q not in mute)


def probes_of(report: Report) -> tuple[str, ...]:
    """The probes that ran: those whose field is filled, and in a whole report all that were asked.

    One that finds nothing, such as a recurrence, leaves its field empty; in a report that was cut
    short nobody knows which of the two it is.
    """
    ours = BUILT_IN["probes"]
    kept = [p for p in _named(report, "probes") if report.complete or p not in ours]
    return (*dict.fromkeys((*kept, *(p for p in ours if getattr(report, field_of(p), None)))),)


def unmet(rule: type[AbstractRule], report: Report) -> str:
    """Why the rule could not tell, "" when it could."""
    missing = lacking(rule, queries_of(report), probes_of(report))
    if not missing:
        return ""
    if missing == FAMILY:
        return "this is told of a family of models, by memaudit family"
    asked = (*_named(report, "queries"), *_named(report, "probes"))
    return f"{missing} was {'not measured' if missing in asked else 'not asked for'}"


def lacking(rule: type[AbstractRule], queries: tuple[str, ...], probes: tuple[str, ...]) -> str:
    """The probe or query that a rule misses; a stranger's that cannot say so misses nothing."""
    try:
        with registry.calling("findings", rule.code, "failed to tell what it needs"):
            return str(rule.lacks(queries, probes))
    except MachineError:
        return ""


def _named(report: Report, kind: str) -> tuple[str, ...]:
    """What the settings of a report list; a file may hold anything there."""
    names = report.settings.get(kind)
    return tuple(map(str, names)) if isinstance(names, list | tuple) else ()
