"""MA104: the curve allows no verdict."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

from memaudit.contracts import AbstractRule
from memaudit.findings.evidence import each, matching, next_power
from memaudit.memory.result import Status
from memaudit.numerics.envelope import SIGNAL_OVER_FLOOR

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memaudit.memory.result import Curve
    from memaudit.report import Finding, Report


#: The longest horizon worth a try.
LONGEST = 2**17
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
                _advice(report, min(curve.epsilon for curve in curves.values())),
                where=where,
            )


def _advice(report: Report, epsilon: float) -> str:
    """What was not done yet and may decide it."""
    steps = ["--set amplitudes=[1.0] for inputs of one size"]
    if report.subject.longest is None:
        steps.insert(0, _longer(report, epsilon))
    if report.subject.dtype != "float64":
        steps.insert(0, "--dtype float64 (dtype='float64' in Python)")
    return "try " + ", or ".join(steps)


def _longer(report: Report, epsilon: float) -> str:
    """A larger horizon; where the spectrum says how slow the model is, one that it fits into."""
    scales = [item.time_scale for item in report.spectrum if math.isfinite(item.time_scale)]
    slowest = max(scales, default=0.0)
    # After so many time scales the slowest mode is down to epsilon.
    wanted = math.ceil(slowest * math.log(1.0 / epsilon))
    if not report.settings.get("horizon", 0) < wanted <= LONGEST:
        return "a larger --horizon"
    return f"--horizon {next_power(wanted)} (the slowest mode lasts {slowest:.3g} steps)"


def _undetermined(curve: Curve) -> bool:
    return curve.decay.kind == "undetermined" and curve.status not in ELSEWHERE


def _reason(curve: Curve) -> str:
    above = int((curve.values > SIGNAL_OVER_FLOOR * curve.floor).sum())
    text = f"{above} of {len(curve.values)} lags above 10 x floor {curve.floor:.2g}"
    return text if curve.status is Status.OK else f"{text}, {curve.status.value}"
