"""Two reports side by side: what is told of the model in both, in one, and how far apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memaudit.comparing.curves import curve_changes
from memaudit.comparing.difference import Change, Difference
from memaudit.comparing.findings import finding_changes
from memaudit.comparing.matching import changes
from memaudit.comparing.records import TOLD
from memaudit.comparing.whole import whole_facts

if TYPE_CHECKING:
    from memaudit.comparing.records import Tell
    from memaudit.report import Report

#: The parts of a report that an audit may be asked for.
SECTIONS = (
    *("memory", "assumptions", "spectrum", "closed_form", "stability", "precision", "gradient"),
    "recall",
)
SUBJECT = (
    *("source", "adapter", "family", "description", "parameters", "coverage", "dtype", "device"),
    *("sha256", "context"),
)


def compare(before: Report, after: Report) -> Difference:
    """What changed from one report to the other; sections that only one has are only named."""
    return Difference(
        subject=Change("subject", _subject(before), _subject(after)),
        settings=Change("settings", dict(before.settings), dict(after.settings)),
        environment=Change("environment", dict(before.environment), dict(after.environment)),
        sections=Change("sections", _sections(before), _sections(after)),
        memory=curve_changes({"": before.memory}, {"": after.memory}),
        layers=curve_changes(before.layers, after.layers),
        **{name: _section(tell, before, after) for name, tell in TOLD.items()},
        findings=finding_changes(before.findings, after.findings),
        whole=Change("model", whole_facts(before), whole_facts(after)),
    )


def _subject(report: Report) -> dict[str, Any]:
    facts = {name: getattr(report.subject, name) for name in SUBJECT}
    return {**facts, "complete": report.complete}


def _sections(report: Report) -> dict[str, Any]:
    return {name: bool(getattr(report, name)) for name in SECTIONS}


def _section(tell: Tell, before: Report, after: Report) -> tuple[Change, ...]:
    """The changes of a section that both reports have."""
    one, other = list(tell(before)), list(tell(after))
    return changes(one, other) if one and other else ()
