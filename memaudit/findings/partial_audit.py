"""MA001: the audit was cut short."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from memaudit.contracts import AbstractRule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memaudit.results import Finding, Report


class PartialAudit(AbstractRule):
    """The report holds only what was measured before the audit stopped."""

    code: ClassVar[str] = "MA001"
    name: ClassVar[str] = "partial-audit"
    severity: ClassVar[str] = "warning"
    explanation: ClassVar[str] = (
        "The audit stopped before everything that was asked for had been measured: it was "
        "interrupted, or a step failed. What had been measured by then is in the report and is "
        "right as far as it goes. Queries that are missing were not run; curves marked as "
        "interrupted rest on fewer probes, so their supremum is a weaker lower bound. Do not "
        "compare a partial report with a complete one: run the audit again, with --quick or a "
        "smaller --horizon when time is short."
    )

    def check(self, report: Report) -> Iterable[Finding]:
        """One finding that names what is there and why it stopped."""
        if report.complete:
            return
        kept = ", ".join(report.memory) or "no curve"
        reasons = "; ".join(f"{e.get('code', '')} {e.get('message', '')}" for e in report.errors)
        advice = "run it again; with --quick or a smaller --horizon it takes less time"
        if report.errors and all(e.get("code") != "E_MEMORY" for e in report.errors):
            advice = "see to the reason, and run it again"
        told = f"the report is not complete; kept: {kept}"
        yield self.finding(told + (f"; reason: {reasons}" if reasons else ""), advice)
