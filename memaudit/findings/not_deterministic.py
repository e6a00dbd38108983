"""MA303: the same input gives different answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from memaudit.contracts import AbstractRule
from memaudit.findings.evidence import failed, measured

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memaudit.report import Finding, Report


class NotDeterministic(AbstractRule):
    """Two runs on one input differ."""

    code: ClassVar[str] = "MA303"
    name: ClassVar[str] = "not-deterministic"
    severity: ClassVar[str] = "warning"
    needs: ClassVar[tuple[str, ...]] = ("assumptions",)
    explanation: ClassVar[str] = (
        "Two runs on the same input gave different answers. Dropout that is left on, sampling, a "
        "state that survives on the module, or nondeterministic kernels do that. The difference "
        "counts as memory at every lag and raises the numerical floor, so slow decays vanish in "
        "it. Put the module into evaluation mode and reset its state between calls; on a GPU ask "
        "torch for deterministic algorithms."
    )

    def check(self, report: Report) -> Iterable[Finding]:
        """One finding per failed measurement."""
        for item in failed(report, "deterministic"):
            yield self.finding(
                f"two runs on the same input differ{measured(item)}",
                "call module.eval(), and reset the state between calls",
                where=item.where,
            )
