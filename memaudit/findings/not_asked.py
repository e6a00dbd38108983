"""MA006: a query could not be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from memaudit.contracts import AbstractRule
from memaudit.findings.evidence import each, matching
from memaudit.memory.result import Status

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memaudit.report import Finding, Report

UNASKED = (
    *(Status.NOT_MEASURED, Status.NO_TOKENS, Status.NO_TOKENIZER),
    *(Status.UNKNOWN_TEXT, Status.TOO_SHORT),
)


class NotAsked(AbstractRule):
    """A query that was asked for has no curve."""

    code: ClassVar[str] = "MA006"
    name: ClassVar[str] = "not-asked"
    severity: ClassVar[str] = "warning"
    explanation: ClassVar[str] = (
        "A query that was asked for could not be put to this model, and its curve is empty: the "
        "model takes no tokens, has no tokenizer, does not know the text, or takes too few "
        "steps. An empty curve is no verdict. The other curves are not touched by it. Give a "
        "text that the tokenizer knows with --text FILE, or ask in embedding space with "
        "--query impulse."
    )

    def check(self, report: Report) -> Iterable[Finding]:
        """One finding per place that names the queries and the reasons."""
        for where, curves in matching(report, lambda curve: curve.status in UNASKED):
            yield self.finding(
                f"not measured ({each(curves, lambda curve: curve.status.value)})",
                "give another --text, or ask in embedding space: --query impulse",
                where=where,
            )
