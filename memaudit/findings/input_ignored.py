"""MA108: the answer does not depend on the input."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from memaudit.contracts import AbstractRule
from memaudit.findings.evidence import groups, holds
from memaudit.memory.result import Status

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memaudit.memory.result import Curve
    from memaudit.report import Finding, Report


class InputIgnored(AbstractRule):
    """Whatever is fed, the answer is the same."""

    code: ClassVar[str] = "MA108"
    name: ClassVar[str] = "input-ignored"
    severity: ClassVar[str] = "warning"
    needs: ClassVar[tuple[str, ...]] = ("assumptions",)
    explanation: ClassVar[str] = (
        "Every curve stays at the numerical floor, and the answer to the inputs that were tried is "
        "the answer to zero: the model does not look at its input. Dead input weights, a "
        "saturated activation, a wrong output that is read, or weights that were never loaded "
        "look like this. There is no memory to measure in such a model. Check the input weights "
        "and the option that chooses the output; if the inputs of the task are large, the scale "
        "of the probes may be too small to be seen."
    )

    def check(self, report: Report) -> Iterable[Finding]:
        """One finding per place where nothing answers."""
        for where, curves in groups(report):
            if not curves or not all(_silent(curve) for curve in curves.values()):
                continue
            if holds(report, "responsive", where) is not False:
                continue
            peak = max((float(c.values.max()) for c in curves.values() if len(c.values)), default=0)
            yield self.finding(
                f"the answer does not depend on the input: {', '.join(curves)} read at most "
                f"{peak:.2g}",
                "check the input weights, and which output is read",
                where=where,
            )


def _silent(curve: Curve) -> bool:
    return curve.status is Status.BELOW_FLOOR or curve.decay.kind == "memoryless"
