"""MA102: the past weighs more, the older it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from memaudit.contracts import AbstractRule
from memaudit.findings.evidence import bracket, each, matching, span

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memaudit.memory.result import Curve
    from memaudit.report import Finding, Report


class GrowingMemory(AbstractRule):
    """The memory curve rises with the lag."""

    code: ClassVar[str] = "MA102"
    name: ClassVar[str] = "growing-memory"
    severity: ClassVar[str] = "error"
    explanation: ClassVar[str] = (
        "The memory curve rises with the lag: an input of long ago moves the answer more than a "
        "recent one. The model is unstable around the inputs that were tried, small changes are "
        "amplified from step to step, and longer sequences than those of the training will "
        "overflow or saturate. A growth inside the window may still end later, where the "
        "nonlinearity saturates. Check the spectrum of the recurrent weights, and constrain or "
        "regularize them before the model is used on long sequences."
    )

    def check(self, report: Report) -> Iterable[Finding]:
        """One finding per place with a growing curve."""
        for where, curves in matching(report, lambda curve: curve.decay.kind == "growing"):
            yield self.finding(
                f"the memory grows with the lag ({each(curves, _growth)})",
                "constrain the recurrent weights; do not run longer sequences before that",
                where=where,
            )


def _growth(curve: Curve) -> str:
    text = f"over {span(curve)}"
    if curve.decay.rate is not None:
        text = f"rate {curve.decay.rate:.4g}{bracket(curve.decay.interval)} a lag " + text
    if len(curve.values) and curve.values[0] > 0:
        text += f", from {curve.values[0]:.2g} to {curve.values[-1]:.2g}"
    return text
