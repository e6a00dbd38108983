"""MA112: rounding errors grow into visible differences between identical runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from memaudit.contracts import AbstractRule
from memaudit.findings.evidence import each, holds, matching
from memaudit.memory.result import Status

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memaudit.memory.result import Curve
    from memaudit.report import Finding, Report

#: Roundings (in units of the largest value) beyond which the floor is not rounding alone.
MANY_ROUNDINGS = 1e6
#: Distance from 1 to the next number.
EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


class SensitiveToRounding(AbstractRule):
    """Two runs on the same input drift apart by far more than a rounding error."""

    code: ClassVar[str] = "MA112"
    name: ClassVar[str] = "sensitive-to-rounding"
    severity: ClassVar[str] = "warning"
    explanation: ClassVar[str] = (
        "Two rows with the same input, in one batch, gave answers that differ by more than a "
        "million rounding errors, although the model is deterministic. Something in the model "
        "amplifies the rounding of the last digit: under that input the state does not forget "
        "small differences, it enlarges them, which is the mark of chaotic dynamics. The floor of "
        "the curve is raised to that noise, so fewer decades can be read. Expect answers on long "
        "inputs to depend on the machine, the batch size and the precision. Feed shorter "
        "sequences or smaller inputs, and compare float32 with float64 before you rely on it."
    )

    def check(self, report: Report) -> Iterable[Finding]:
        """One finding per place, with the noise beside the largest value."""
        rounding = EPS.get(report.subject.dtype, EPS["float32"])
        for where, curves in matching(report, lambda curve: _noisy(curve, rounding)):
            if holds(report, "deterministic", where) is False:
                continue
            yield self.finding(
                f"rounding errors grow until identical runs differ ({each(curves, _sizes)})",
                "do not rely on long runs to the last digits; compare --dtype float32 and float64",
                where=where,
            )


def _noisy(curve: Curve, rounding: float) -> bool:
    if curve.status is Status.DIVERGED or not len(curve.values):
        return False
    return curve.noise > MANY_ROUNDINGS * rounding * float(curve.values.max()) > 0


def _sizes(curve: Curve) -> str:
    return f"by {curve.noise:.2g}, largest value {float(curve.values.max()):.2g}"
