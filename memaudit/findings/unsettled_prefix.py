"""MA110: the state was still moving when the input was switched off."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from memaudit.contracts import AbstractRule
from memaudit.findings.evidence import each, matching
from memaudit.memory.result import Status

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memaudit.memory.result import Curve
    from memaudit.report import Finding, Report


class UnsettledPrefix(AbstractRule):
    """A query that switches an input off did not find a state at rest."""

    code: ClassVar[str] = "MA110"
    name: ClassVar[str] = "unsettled-prefix"
    severity: ClassVar[str] = "note"
    explanation: ClassVar[str] = (
        "The reversed query holds an input until the state has settled, switches it off and "
        "watches it fade. The state was still moving after the longest prefix that was tried, so "
        "the curve mixes the fading with the rest of that motion. Its early lags are not to be "
        "trusted; the tail is. A model with a memory longer than the prefix, an oscillator or an "
        "integrator never settles. Compare with the heaviside curve, or use a larger --horizon, "
        "which lengthens the prefix too."
    )

    def check(self, report: Report) -> Iterable[Finding]:
        """One finding per place, with the length of the prefix."""
        for where, curves in matching(report, _unsettled):
            yield self.finding(
                f"the state had not settled before the input was switched off "
                f"({each(curves, _prefix)})",
                "trust the tail of that curve only, or use a larger --horizon",
                where=where,
            )


def _unsettled(curve: Curve) -> bool:
    """A curve that is zero throughout has nothing that a moving state could spoil."""
    return curve.status is Status.UNSETTLED and curve.decay.kind != "memoryless"


def _prefix(curve: Curve) -> str:
    return "prefix unknown" if curve.prefix is None else f"after {curve.prefix} steps"
