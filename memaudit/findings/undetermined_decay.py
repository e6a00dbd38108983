"""MA104: the curve allows no verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from memaudit.contracts import AbstractRule
from memaudit.findings.evidence import each, matching
from memaudit.numerics.envelope import SIGNAL_OVER_FLOOR
from memaudit.results import Status

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memaudit.results import Curve, Finding, Report


#: These have a finding of their own, or nothing to judge.
ELSEWHERE = (
    *(Status.DIVERGED, Status.NOT_MEASURED),
    *(Status.NO_TOKENS, Status.NO_TOKENIZER, Status.UNKNOWN_TEXT, Status.TOO_SHORT),
)


class UndeterminedDecay(AbstractRule):
    """No kind of decay describes the curve better than the others."""

    code: ClassVar[str] = "MA104"
    name: ClassVar[str] = "undetermined-decay"
    severity: ClassVar[str] = "note"
    explanation: ClassVar[str] = (
        "The curve was measured, but no kind of decay could be told from it. Either too few lags "
        "rise above ten times the numerical floor, or the kinds describe the curve equally well "
        "inside the window. Nothing is wrong with the model; the measurement is too weak for a "
        "verdict. More precision (--dtype float64), a larger --horizon or inputs of one size "
        "(--set amplitudes=[1.0]) usually decide it."
    )

    def check(self, report: Report) -> Iterable[Finding]:
        """One finding per place with an undetermined curve."""
        for where, curves in matching(report, _undetermined):
            yield self.finding(
                f"the kind of decay is open ({each(curves, _reason)})",
                _advice(report),
                where=where,
            )


def _advice(report: Report) -> str:
    """What was not done yet and may decide it."""
    steps = ["--set amplitudes=[1.0] for inputs of one size"]
    if report.subject.longest is None:
        steps.insert(0, "a larger --horizon")
    if report.subject.dtype != "float64":
        steps.insert(0, "--dtype float64 (dtype='float64' in Python)")
    return "try " + ", or ".join(steps)


def _undetermined(curve: Curve) -> bool:
    return curve.decay.kind == "undetermined" and curve.status not in ELSEWHERE


def _reason(curve: Curve) -> str:
    above = int((curve.values > SIGNAL_OVER_FLOOR * curve.floor).sum())
    text = f"{above} of {len(curve.values)} lags above 10 x floor {curve.floor:.2g}"
    return text if curve.status is Status.OK else f"{text}, {curve.status.value}"
