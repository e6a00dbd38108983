"""MA204: the spectrum says decay, the measurement does not."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

from memaudit.contracts import AbstractRule
from memaudit.findings.evidence import bracket, holds, last_lag
from memaudit.numerics.predictions import predictions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memaudit.numerics.predictions import Prediction
    from memaudit.results import Finding, Report

#: Rates within this factor agree: several modes together fall slower than one at first.
FACTOR = 2.0


class SpectrumDisagrees(AbstractRule):
    """A curve outlives the slowest mode of every recurrent layer."""

    code: ClassVar[str] = "MA204"
    name: ClassVar[str] = "spectrum-disagrees"
    severity: ClassVar[str] = "warning"
    needs: ClassVar[tuple[str, ...]] = ("spectrum",)
    explanation: ClassVar[str] = (
        "By the eigenvalues at rest every mode of the recurrent layers is forgotten inside the "
        "window, and yet a measured curve stays, grows, or falls more than twice as slowly as the "
        "slowest mode. Eigenvalues describe a nonlinear model near its rest only: an input can "
        "carry the state to another equilibrium, a cycle or a drift, as some starts do with the "
        "stable matrix of the inverse approximation paper. A measured rate that is faster is no "
        "contradiction, because a mode need not be heard. Believe the measurement for inputs of "
        "the size that was fed (--set amplitudes=[1.0] for one size), and do not call this model "
        "stable on account of its spectrum."
    )

    def check(self, report: Report) -> Iterable[Finding]:
        """One finding per place whose curves outlive the prediction."""
        places: dict[str, list[Prediction]] = {}
        for item in predictions(report):
            if item.complete and holds(report, "causal", item.where) is not False:
                places.setdefault(item.where, []).append(item)
        for where, items in places.items():
            found = [item for item in items if _outlives(item)]
            if found:
                slow = found[0]
                told = "; ".join(f"{item.query}: {_measured(item)}" for item in found)
                yield self.finding(
                    f"the spectrum says decay, the measurement does not ({told}; slowest mode: "
                    f"rate {slow.rate:.4g}, {slow.layer} at {slow.at})",
                    "believe the measurement for inputs of the size that was fed",
                    where=where,
                )


def _outlives(item: Prediction) -> bool:
    curve, decay = item.curve, item.curve.decay
    if decay.kind == "exponential":
        return decay.rate is not None and FACTOR * decay.rate < item.rate < math.inf
    # A plateau below epsilon of the maximum is no memory, and a slow mode looks like a plateau.
    inside = item.time_scale * -math.log(curve.epsilon) <= last_lag(curve)
    stays = decay.kind == "persistent" and curve.horizon is None
    return inside and (stays or decay.kind == "growing")


def _measured(item: Prediction) -> str:
    decay = item.curve.decay
    if decay.rate is None:
        return decay.kind
    return f"{decay.kind}, rate {decay.rate:.4g}{bracket(decay.interval)}"
