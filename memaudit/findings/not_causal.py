"""MA301: later inputs reach earlier answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from memaudit.contracts import AbstractRule
from memaudit.findings.evidence import failed, measured

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memaudit.report import Finding, Report


class NotCausal(AbstractRule):
    """The answer at a moment depends on what is fed afterwards."""

    code: ClassVar[str] = "MA301"
    name: ClassVar[str] = "not-causal"
    severity: ClassVar[str] = "warning"
    needs: ClassVar[tuple[str, ...]] = ("assumptions",)
    explanation: ClassVar[str] = (
        "A change of a later input moved an earlier answer, so the model looks ahead: it is "
        "bidirectional, pools over the sequence, or normalizes over time. The memory function is "
        "defined for causal models. The curves here read the past only, and the windows were "
        "followed by extra steps so that the end of the sequence does not disturb them. They "
        "describe how the past fades, and are silent about the part that looks ahead. If the "
        "model is meant to be causal, this is a leak of the future: look for it before anything "
        "else."
    )

    def check(self, report: Report) -> Iterable[Finding]:
        """One finding per failed measurement."""
        for item in failed(report, "causal"):
            yield self.finding(
                f"later inputs reach earlier answers{measured(item)}; the curves read the past "
                "only, and the windows were followed by extra steps",
                "read the curves as the memory of the past; if the model should be causal, find "
                "the leak",
                where=item.where,
            )
