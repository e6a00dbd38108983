"""MA113: the measured horizon falls far short of the advertised context."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from memaudit.contracts import AbstractRule
from memaudit.findings.evidence import remembers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memaudit.report import Finding, Report

#: A horizon below this share of the context falls far short of it.
FAR_SHORT = 0.25


class ShortOfContext(AbstractRule):
    """Nothing that was measured reaches a quarter of the context that the model advertises."""

    code: ClassVar[str] = "MA113"
    name: ClassVar[str] = "short-of-context"
    severity: ClassVar[str] = "warning"
    explanation: ClassVar[str] = (
        "The config of the model states a context length, the most positions that it takes. The "
        "longest horizon of all the curves, the lag from which the answer keeps less than epsilon "
        "of the effect of an input, is less than a quarter of it. A longer prompt is accepted, "
        "and its beginning hardly counts. The horizon depends on what is fed: --query context "
        "measures it on text, your own with --text FILE. A smaller epsilon (--set epsilon=1e-4) "
        "counts fainter traces as memory."
    )

    def check(self, report: Report) -> Iterable[Finding]:
        """One finding with the longest horizon and the query that saw it."""
        context = report.subject.context
        # What one more repetition changes saturates, however far the model looks back.
        curves = {q: c for q, c in report.memory.items() if q != "repeat" and remembers(c)}
        if context is None or not curves or any(c.horizon is None for c in curves.values()):
            return
        query, curve = max(curves.items(), key=lambda pair: pair[1].horizon or 0)
        if (curve.horizon or 0) >= FAR_SHORT * context:
            return
        yield self.finding(
            f"the config advertises a context of {context} steps; the longest horizon that was "
            f"measured is {curve.horizon} ({query})",
            "compare with text of the kind that you will feed"
            if "context" in curves
            else "ask with your own text (--query context --text FILE) before relying on it",
        )
