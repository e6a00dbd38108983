"""MA208: the larger the models of a family, the smaller the moves that spoil them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from memaudit.contracts import AbstractRule
from memaudit.rule import FAMILY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memaudit.families.result import FamilyReport
    from memaudit.report import Finding, Report


class CrossingsShiftLeft(AbstractRule):
    """The curves E_m(beta) cross at ever smaller beta as m grows."""

    code: ClassVar[str] = "MA208"
    name: ClassVar[str] = "crossings-shift-left"
    severity: ClassVar[str] = "warning"
    needs: ClassVar[tuple[str, ...]] = (FAMILY,)
    explanation: ClassVar[str] = (
        "Larger models of this family fit the target better as long as nothing moves, but a move "
        "of the weights from which on they are worse than the next smaller model gets smaller "
        "and smaller with the size. There is then no radius that holds for all sizes: the "
        "approximation is not stable, and a larger model needs smaller learning rates and finer "
        "number formats for no gain. Recurrent weights that are stored as eigenvalues do this "
        "when the target forgets slower than exponentially. A stable reparameterization of the "
        "recurrent weights (exp, softplus) lets the crossings stay put; otherwise "
        "prefer the smaller model."
    )

    def check(self, report: Report) -> Iterable[Finding]:
        """Nothing: it takes several models to cross."""
        del report
        return ()

    def check_family(self, family: FamilyReport) -> Iterable[Finding]:
        """One finding for an unstable family."""
        if family.verdict != "unstable":
            return
        there = [c for c in family.crossings if c.exists]
        first = float(family.betas[0])
        places = [f"{'below ' if c.beta <= first else ''}{c.beta:.3g}" for c in there]
        pairs = zip(places, there, strict=True)
        told = ", ".join(f"{at} (m = {c.smaller} and {c.larger})" for at, c in pairs)
        yield self.finding(
            f"the curves E_m(beta) cross at ever smaller beta: {told}",
            "store the recurrent weights behind exp or softplus, or stay with a smaller model",
        )
