"""MA109: the response is not finite."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from memaudit.contracts import AbstractRule
from memaudit.findings.evidence import each, last_lag, matching
from memaudit.memory.result import Status

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memaudit.memory.result import Curve
    from memaudit.report import Finding, Report


class Diverged(AbstractRule):
    """The answer overflowed inside the window."""

    code: ClassVar[str] = "MA109"
    name: ClassVar[str] = "diverged"
    severity: ClassVar[str] = "error"
    explanation: ClassVar[str] = (
        "For at least one probe the answer became infinite or undefined before the window was "
        "over. The curve ends at the last lag that was finite. The recurrence amplifies what it "
        "holds, or a normalization divides by zero. A model that does this on bounded inputs is "
        "not usable on sequences of that length. Look at the spectrum of the recurrent weights; "
        "a wider dtype only moves the lag at which it overflows."
    )

    def check(self, report: Report) -> Iterable[Finding]:
        """One finding per place whose answer overflowed."""
        for where, curves in matching(report, lambda curve: curve.status is Status.DIVERGED):
            yield self.finding(
                f"the response is not finite ({each(curves, _end)})",
                "constrain the recurrent weights, or audit a --horizon that ends before it",
                where=where,
            )


def _end(curve: Curve) -> str:
    if not len(curve.values):
        return "from the first lag on"
    return f"the last finite lag is {last_lag(curve)}, with {curve.values[-1]:.2g}"
