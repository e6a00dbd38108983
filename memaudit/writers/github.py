"""The findings as annotations of a GitHub workflow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from memaudit.errors import clean
from memaudit.interfaces import AbstractReportFormat
from memaudit.report import PARTIAL, SEVERITIES
from memaudit.writers.terminal import verdict_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memaudit.report import Report

#: Severities by the names that GitHub has for them.
LEVELS = {"error": "error", "warning": "warning", "note": "notice"}
LONGEST = 1200
_MESSAGE = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_PROPERTY = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A", ":": "%3A", ",": "%2C"})


@dataclass(frozen=True, slots=True)
class Github(AbstractReportFormat):
    """One workflow command a line, the gravest first: GitHub shows the first ten of a level."""

    name: ClassVar[str] = "github"
    summary: ClassVar[str] = "findings and gates as annotations of a GitHub workflow"
    suffix: ClassVar[str] = ".annotations"

    def render(self, report: Report) -> str:
        """Gates that were hit, what went wrong, the findings, and the verdict."""
        return "".join(f"{line}\n" for line in _lines(report))


def annotation(level: str, title: str, message: str) -> str:
    """One workflow command; foreign text can neither end it nor begin another."""
    head = clean(title).translate(_PROPERTY)
    return f"::{level} title={head}::{clean(message, limit=LONGEST).translate(_MESSAGE)}"


def _lines(report: Report) -> Iterator[str]:
    for gate in report.gates:
        if gate.hit:
            yield annotation("error", f"memaudit gate {gate.word}", f"hit by {gate.reason}")
    for error in report.errors:
        fact = "; ".join(filter(None, (error.get("message", ""), error.get("hint", ""))))
        yield annotation("error", f"memaudit {error.get('code', '')}", fact)
    if not report.complete:
        yield annotation("warning", "memaudit", PARTIAL)
    for severity in reversed(SEVERITIES):
        for finding in report.findings:
            if finding.severity == severity:
                where = f" at {finding.where}" if finding.where else ""
                title = f"{finding.code} {finding.name}{where}"
                message = f"{finding.message} -> {finding.advice}"
                yield annotation(LEVELS[severity], title, message)
    yield annotation("notice", f"memaudit {report.subject.source}", verdict_line(report.document()))
