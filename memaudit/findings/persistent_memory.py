"""MA103: the memory does not decay inside the window."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from memaudit.contracts import AbstractRule
from memaudit.findings.evidence import each, matching, span

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memaudit.memory.result import Curve
    from memaudit.report import Finding, Report


class PersistentMemory(AbstractRule):
    """The memory curve stays on a level, or swings without falling."""

    code: ClassVar[str] = "MA103"
    name: ClassVar[str] = "persistent-memory"
    severity: ClassVar[str] = "warning"
    explanation: ClassVar[str] = (
        "Inside the measured window the memory curve does not fall: it stays on a plateau or "
        "swings with an even amplitude. The state then holds an input for as long as was looked, "
        "as an integrator, a latch, a counter or an oscillator on the edge of stability does. "
        "Where the task needs that, it is right. Otherwise old inputs never leave the state, and "
        "a small change of the weights can turn the plateau into growth. Measure again with a "
        "larger --horizon: a very slow decay looks like a plateau in a short window. A curve that "
        "falls to a plateau below epsilon of its maximum has a horizon, and is no such finding."
    )

    def check(self, report: Report) -> Iterable[Finding]:
        """One finding per place with a persistent curve."""
        for where, curves in matching(report, _stays):
            yield self.finding(
                f"the memory does not decay inside the window ({each(curves, _level)})",
                "measure again with a larger --horizon, and ask whether the task needs it",
                where=where,
            )


def _level(curve: Curve) -> str:
    text = f"over {span(curve)}"
    if len(curve.values):
        text += f", {curve.values.max():.2g} at most and {curve.values[-1]:.2g} at the end"
    return text


def _stays(curve: Curve) -> bool:
    """What falls below epsilon of its maximum is forgotten, though a small rest may remain."""
    return curve.decay.kind == "persistent" and curve.horizon is None
