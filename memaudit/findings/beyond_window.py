"""MA106: the horizon lies beyond the window."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

from memaudit.contracts import AbstractRule
from memaudit.findings.evidence import each, first_lag, last_lag, matching, next_power
from memaudit.numerics.envelope import SIGNAL_OVER_FLOOR

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memaudit.memory.result import Curve
    from memaudit.report import Finding, Report


#: A fit is trusted this many windows ahead, not further.
TRUSTED = 16


class BeyondWindow(AbstractRule):
    """The memory decays, but has not fallen to epsilon at the last lag."""

    code: ClassVar[str] = "MA106"
    name: ClassVar[str] = "beyond-window"
    severity: ClassVar[str] = "note"
    explanation: ClassVar[str] = (
        "The horizon is the lag from which the curve stays below epsilon times its maximum. The "
        "curve does decay, but at the last lag that was measured it was still above that, so the "
        "horizon is known only to be larger. The rate and the kind of decay rest on the window "
        "alone. Measure again with a larger --horizon; where the fit allows it, the finding says "
        "at which lag the horizon is to be expected."
    )

    def check(self, report: Report) -> Iterable[Finding]:
        """One finding per place, with the lag at which the fit would end."""
        for where, curves in matching(report, _unfinished):
            wanted = max(_expected(curve) or 0 for curve in curves.values())
            yield self.finding(
                f"the horizon lies beyond the window ({each(curves, _bound)})",
                f"try --horizon {next_power(wanted)}" if wanted else "try a larger --horizon",
                where=where,
            )


def _unfinished(curve: Curve) -> bool:
    if curve.horizon is not None or curve.decay.kind not in ("exponential", "polynomial"):
        return False
    # A curve that has sunk into its floor would not rise out of it in a longer window.
    return len(curve.values) == 0 or bool(curve.values[-1] > SIGNAL_OVER_FLOOR * curve.floor)


def _expected(curve: Curve) -> int | None:
    """The lag at which the fitted curve reaches epsilon, None when it is out of reach.

    From the last lag on the level falls by `left`: exp(-rate·s) = left, or (1 + s/T)^-alpha = left.
    """
    if not len(curve.values) or not curve.values[-1] > 0:
        return None
    past = curve.values[curve.lags >= first_lag(curve)]
    left = min(curve.epsilon * float(past.max(initial=0.0)) / float(curve.values[-1]), 1.0)
    if left <= 0.0:
        return None
    end, rate, exponent = last_lag(curve), curve.decay.rate, curve.decay.exponent
    if curve.decay.kind == "exponential" and rate is not None and rate > 0:
        lag = end - math.log(left) / rate
    elif curve.decay.kind == "polynomial" and exponent is not None and exponent > 0:
        # exp(36) is out of reach already, and a small exponent would overflow.
        lag = end * math.exp(min(-math.log(left) / exponent, 36.0))
    else:
        return None
    return math.ceil(lag) if lag <= TRUSTED * end else None


def _bound(curve: Curve) -> str:
    text = f"more than {last_lag(curve)} lags"
    expected = _expected(curve)
    return text if expected is None else f"{text}, about {expected} by the fit"
