"""MA201: a mode of a recurrence stands next to the boundary of stability."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from memaudit.contracts import AbstractRule
from memaudit.findings.margins import margins, time_scale

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memaudit.results import Finding, Report, Spectrum

#: Margins below this are an alarm: a step of training, or rounding to fewer digits, is as large.
ALARM = 1e-4
#: |lambda| beyond 1 by no more than this is on the boundary: it grows e-fold in a million steps.
ROUNDING = 1e-6


class NearBoundary(AbstractRule):
    """The slowest mode of a layer is nearer to |lambda| = 1 than 1e-4."""

    code: ClassVar[str] = "MA201"
    name: ClassVar[str] = "near-boundary"
    severity: ClassVar[str] = "warning"
    needs: ClassVar[tuple[str, ...]] = ("spectrum",)
    explanation: ClassVar[str] = (
        "An eigenvalue of one step of the recurrence has a modulus within 1e-4 of 1, or is exactly "
        "1: its mode forgets only after ten thousand steps or never. A change of the weights of "
        "that size, by a step of fine-tuning or by storing them in bfloat16 or int8, can carry the "
        "mode over the boundary, behind which the state grows. Where the task needs a memory "
        "without end that is the price. Otherwise fine-tune with a parameterization that keeps the "
        "modes inside, and keep these weights in float32. Layers whose step depends on the data "
        "are judged at rest."
    )

    def check(self, report: Report) -> Iterable[Finding]:
        """One finding per place, about the nearest of its layers."""
        for where, items in margins(report, lambda item: -ROUNDING <= item.margin < ALARM):
            yield self.finding(
                _sentence(items),
                "keep these weights in float32, and fine-tune in a stable parameterization",
                where=where,
            )


def _sentence(items: list[Spectrum]) -> str:
    nearest, *others = items
    near = int((1.0 - np.abs(nearest.eigenvalues) < ALARM).sum())
    which = "is on" if abs(nearest.margin) <= ROUNDING else f"has {nearest.margin:.2g} left to"
    more = f"; {len(others)} more recurrences are as near" if others else ""
    return (
        f"{nearest.layer} ({nearest.cell}, {nearest.at}) {which} the boundary: {near} of "
        f"{nearest.count} modes within {ALARM:g}, time scale {time_scale(nearest)}{more}"
    )
