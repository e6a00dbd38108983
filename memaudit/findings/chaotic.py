"""MA207: nearby states part."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from memaudit.contracts import AbstractRule
from memaudit.findings.evidence import bracket
from memaudit.findings.margins import margins

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memaudit.results import Finding, Report, Spectrum


class Chaotic(AbstractRule):
    """The largest Lyapunov exponent along a trajectory is above zero."""

    code: ClassVar[str] = "MA207"
    name: ClassVar[str] = "chaotic"
    severity: ClassVar[str] = "warning"
    needs: ClassVar[tuple[str, ...]] = ("spectrum",)
    explanation: ClassVar[str] = (
        "Along a trajectory under ordinary inputs two states that differ by a little move apart, "
        "by the factor exp(exponent) a step on average, and the whole interval of that exponent "
        "lies above zero. Such a model does not forget where it came from, yet nothing can be read "
        "back from it: rounding in the last digit, another batch size or another machine changes "
        "its answers after a while. Recurrent weights with too large a gain do this. Train with a "
        "smaller gain or a penalty on the exponent, and trust no memory curve beyond a few "
        "multiples of one over the exponent."
    )

    def check(self, report: Report) -> Iterable[Finding]:
        """One finding per place, about the most chaotic of its layers."""
        for where, items in margins(report, _parts):
            worst = max(items, key=lambda item: item.lyapunov or 0.0)
            interval = bracket(worst.lyapunov_interval)
            yield self.finding(
                f"nearby states of {worst.layer} part along a trajectory: Lyapunov exponent "
                f"{worst.lyapunov:.3g}{interval} a step",
                "train with a smaller recurrent gain; compare answers on two machines",
                where=where,
            )


def _parts(item: Spectrum) -> bool:
    return item.lyapunov_interval is not None and item.lyapunov_interval[0] > 0.0
