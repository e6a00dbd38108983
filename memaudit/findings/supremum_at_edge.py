"""MA105: the supremum sits at the edge of the amplitude grid."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from memaudit.contracts import AbstractRule
from memaudit.findings.evidence import matching

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memaudit.memory.result import Curve
    from memaudit.report import Finding, Report


class SupremumAtEdge(AbstractRule):
    """Larger or smaller inputs than those tried would give a larger curve."""

    code: ClassVar[str] = "MA105"
    name: ClassVar[str] = "supremum-at-edge"
    severity: ClassVar[str] = "note"
    explanation: ClassVar[str] = (
        "A memory curve is a supremum over inputs, estimated over a grid of directions and "
        "amplitudes. Here the largest values came from the first or the last amplitude of that "
        "grid and were still rising. The curve is then a lower bound that more extreme inputs "
        "would lift; its level is uncertain, its kind of decay less so. Ask whether such "
        "amplitudes occur in your data; --set amplitudes=[0.5,1,2] tries those that do."
    )

    def check(self, report: Report) -> Iterable[Finding]:
        """One finding per place, naming the queries."""
        for where, curves in matching(report, _rising):
            probes = max(curve.probes for curve in curves.values())
            yield self.finding(
                f"the supremum was still rising at the edge of the amplitude grid "
                f"({', '.join(curves)}; {probes} probes)",
                "take the level as a lower bound; --set amplitudes=[...] tries others",
                where=where,
            )


def _rising(curve: Curve) -> bool:
    return curve.at_edge and curve.decay.kind != "memoryless"
