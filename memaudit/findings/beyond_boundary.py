"""MA202: a mode of a recurrence grows."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from memaudit.contracts import AbstractRule
from memaudit.findings.margins import margins
from memaudit.findings.near_boundary import ROUNDING
from memaudit.numerics.spectra import AT_REST
from memaudit.results import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memaudit.results import Report, Spectrum


class BeyondBoundary(AbstractRule):
    """An eigenvalue of one step lies outside the unit circle."""

    code: ClassVar[str] = "MA202"
    name: ClassVar[str] = "beyond-boundary"
    severity: ClassVar[str] = "error"
    milder: ClassVar[str] = "warning"
    needs: ClassVar[tuple[str, ...]] = ("spectrum",)
    explanation: ClassVar[str] = (
        "An eigenvalue of one step of the recurrence has a modulus above 1 by more than rounding. "
        "In a linear layer that mode grows without end, and so does every error in it: on longer "
        "inputs than it was trained on the model overflows. In a nonlinear cell it means that the "
        "state at rest is unstable, which is a warning only: the nonlinearity may catch the state "
        "elsewhere, and the measured curves tell whether it does. Train with a parameterization "
        "that keeps the modes inside, or look for weights that were stored in too few digits. The "
        "report names the layer, the mode and how fast it grows."
    )

    def check(self, report: Report) -> Iterable[Finding]:
        """One finding per place and severity, about the layer that is farthest out."""
        for where, items in margins(report, lambda item: item.margin < -ROUNDING):
            nonlinear = [item for item in items if item.at.startswith(AT_REST)]
            linear = [item for item in items if not item.at.startswith(AT_REST)]
            if linear:
                yield self.finding(
                    f"{_sentence(linear)}: the state grows without end",
                    "retrain or retrofit with a parameterization that keeps |lambda| below 1",
                    where=where,
                )
            if nonlinear:
                message = f"{_sentence(nonlinear)}: the state does not stay where it rests"
                advice = "look at the measured curves and at the Lyapunov exponent"
                yield Finding(self.code, self.name, "warning", message, advice, where)


def _sentence(items: list[Spectrum]) -> str:
    farthest, *others = items
    out = int((np.abs(farthest.eigenvalues) > 1.0 + ROUNDING).sum())
    more = f"; {len(others)} more recurrences have such modes" if others else ""
    return (
        f"{farthest.layer} ({farthest.cell}, {farthest.at}) has {out} of {farthest.count} modes "
        f"beyond the boundary, the largest of modulus {1.0 - farthest.margin:.6g}{more}"
    )
