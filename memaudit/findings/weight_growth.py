"""MA209: the models of a family pay for their memory with larger weights or a thinner margin."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from memaudit.contracts import AbstractRule
from memaudit.rule import FAMILY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memaudit.families.result import FamilyReport
    from memaudit.report import Finding, Report

#: Growth of the largest weight, or shrinking of the margin, over the family that is told.
FACTOR = 4.0


class WeightGrowth(AbstractRule):
    """The weights grow with m, or the slowest mode creeps towards the boundary."""

    code: ClassVar[str] = "MA209"
    name: ClassVar[str] = "weight-growth"
    severity: ClassVar[str] = "warning"
    needs: ClassVar[tuple[str, ...]] = (FAMILY,)
    explanation: ClassVar[str] = (
        "A stable approximation has weights that stay bounded as the model grows. In this family "
        "the largest weight grows by more than a factor of four from the smallest member to the "
        "largest, or the slowest mode comes four times closer to the boundary while moves of the "
        "recurrent weights can still push it over. StableSSM (Remarks B.1 and B.2) shows that "
        "one of the two is the price for a memory that decays slower than exponentially. Large "
        "weights amplify rounding, and a thin margin makes training fragile: regularize the "
        "fit, or store the recurrent weights behind a stable reparameterization."
    )

    def check(self, report: Report) -> Iterable[Finding]:
        """Nothing: it takes several models to grow."""
        del report
        return ()

    def check_family(self, family: FamilyReport) -> Iterable[Finding]:
        """One finding for the weights, one for the margin."""
        if len(family.members) < 2:
            return
        first, last = family.members[0], family.members[-1]
        sizes = f"from m = {first.size} to m = {last.size}"
        if last.weight > FACTOR * first.weight:
            yield self.finding(
                f"the largest weight grows from {first.weight:.3g} to {last.weight:.3g} {sizes}",
                "regularize the fit, or stay with a smaller model",
                where="weights",
            )
        if first.margin is None or last.margin is None:
            return
        margin, thin = first.margin, last.margin
        room, left = (0.0 if r is None else r for r in (first.radius, last.radius))
        # Behind a reparameterization the room for moves stays, however thin the margin gets.
        if margin > FACTOR * max(thin, 0.0) and room > FACTOR * left:
            yield self.finding(
                f"the slowest mode's distance to the boundary falls from {margin:.3g} to "
                f"{thin:.3g} {sizes}, and moves of {left:.3g} take it over, not of {room:.3g}",
                "store the recurrent weights behind exp or softplus",
                where="modes",
            )
