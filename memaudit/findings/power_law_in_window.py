"""MA111: the curve falls like a power law inside the window."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from memaudit.contracts import AbstractRule
from memaudit.findings.evidence import bracket, each, matching, span

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memaudit.memory.result import Curve
    from memaudit.report import Finding, Report


class PowerLawInWindow(AbstractRule):
    """A power law describes the window best; nothing is said about what comes after it."""

    code: ClassVar[str] = "MA111"
    name: ClassVar[str] = "power-law-in-window"
    severity: ClassVar[str] = "note"
    explanation: ClassVar[str] = (
        "Inside the measured window the curve falls like a power of the lag, more slowly than any "
        "single exponential. Many exponentials with spread rates add up to the same picture inside "
        "a window: 64 of them with log-spaced rates cannot be told from a power law up to lag 512. "
        "So the verdict is about the window, and is no statement about the asymptotic class. A "
        "finite linear recurrence, for one, decays exponentially in the end. A larger --horizon "
        "shows whether the straight line in log-log coordinates bends."
    )

    def check(self, report: Report) -> Iterable[Finding]:
        """One finding per place, always with the window."""
        for where, curves in matching(report, lambda curve: curve.decay.kind == "polynomial"):
            yield self.finding(
                f"the memory falls like a power law inside the window ({each(curves, _law)}); a "
                "sum of exponentials looks the same inside a window, so this says nothing about "
                "the asymptotic class",
                "a larger --horizon shows whether it bends",
                where=where,
            )


def _law(curve: Curve) -> str:
    if curve.decay.exponent is None:
        return f"over {span(curve)}"
    exponent = f"exponent {curve.decay.exponent:.4g}{bracket(curve.decay.interval)}"
    return f"{exponent} over {span(curve)}"
