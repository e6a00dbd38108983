"""MA101: the model answers, but remembers nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from memaudit.contracts import AbstractRule
from memaudit.findings.evidence import groups, holds, remembers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memaudit.report import Finding, Report


class Memoryless(AbstractRule):
    """A step in the input leaves no trace after it is over."""

    code: ClassVar[str] = "MA101"
    name: ClassVar[str] = "memoryless"
    severity: ClassVar[str] = "note"
    needs: ClassVar[tuple[str, ...]] = ("heaviside",)
    explanation: ClassVar[str] = (
        "The model answers its input, yet under a step the answer is constant from the first "
        "moment on: nothing of the past reaches the present. An identity map, a pointwise layer "
        "or a network whose recurrent weights are zero behaves like this. For a feed-forward "
        "model that is right. For a recurrent one it means that the recurrence is cut off or was "
        "never trained; check that the recurrent weights were loaded and are not all zero."
    )

    def check(self, report: Report) -> Iterable[Finding]:
        """One finding per place whose heaviside curve is memoryless."""
        for where, curves in groups(report):
            curve = curves.get("heaviside")
            if curve is None or curve.decay.kind != "memoryless":
                continue
            if holds(report, "responsive", where) is False or any(map(remembers, curves.values())):
                continue
            peak = float(curve.values.max()) if len(curve.values) else 0.0
            yield self.finding(
                f"the answer to a step keeps no trace of the past: at most {peak:.2g} against a "
                f"numerical floor of {curve.floor:.2g}",
                "if the model is meant to be recurrent, check its recurrent weights",
                where=where,
            )
