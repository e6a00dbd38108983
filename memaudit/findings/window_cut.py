"""MA005: the model takes fewer steps than the window asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from memaudit.contracts import AbstractRule
from memaudit.findings.evidence import last_lag, matching
from memaudit.memory.result import Status

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memaudit.memory.result import Curve
    from memaudit.report import Finding, Report


class WindowCut(AbstractRule):
    """Some curves end early, because the model has no further positions."""

    code: ClassVar[str] = "MA005"
    name: ClassVar[str] = "window-cut"
    severity: ClassVar[str] = "note"
    explanation: ClassVar[str] = (
        "The model has a table of positions that ends, so it cannot be run for the whole window. "
        "The queries were asked for as many lags as fit: the impulse needs one step a lag, the "
        "reversed query a prefix besides, and a model that looks ahead is run past the end of the "
        "window. Nothing was truncated silently: every curve has the lags that were measured. A "
        "query that does not fit at all has no curve, and its status says so."
    )

    def check(self, report: Report) -> Iterable[Finding]:
        """One finding per place that names the queries and their lags."""
        limit, asked = report.subject.longest, int(report.settings.get("horizon", 0))
        if limit is None:
            return

        def cut(curve: Curve) -> bool:
            short = last_lag(curve) + 1 < asked and curve.status is not Status.DIVERGED
            return short and curve.status is not Status.NO_TOKENIZER

        for where, curves in matching(report, cut):
            told = ", ".join(
                f"{query} {last_lag(c) + 1 if len(c.lags) else 0}" for query, c in curves.items()
            )
            yield self.finding(
                f"the model takes at most {limit} steps; lags measured instead of {asked}: {told}",
                "take the curves as far as they go",
                where=where,
            )
