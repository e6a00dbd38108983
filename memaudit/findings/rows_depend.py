"""MA304: the rows of a batch influence each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from memaudit.contracts import AbstractRule
from memaudit.findings.evidence import failed, measured

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memaudit.report import Finding, Report


class RowsDepend(AbstractRule):
    """The answer to a sequence depends on what else is in the batch."""

    code: ClassVar[str] = "MA304"
    name: ClassVar[str] = "rows-depend"
    severity: ClassVar[str] = "warning"
    needs: ClassVar[tuple[str, ...]] = ("assumptions",)
    explanation: ClassVar[str] = (
        "A sequence was answered differently alone and together with others. Batch norm in "
        "training mode, experts with a capacity, padding that leaks into the state, or a swapped "
        "batch and time axis do that. Probes run in batches, so one probe may stand in the curve "
        "of another, and the curves are to be read with care. In use, answers depend on who "
        "shares the batch. Check the batch_first setting and evaluation mode first."
    )

    def check(self, report: Report) -> Iterable[Finding]:
        """One finding per failed measurement."""
        for item in failed(report, "rows-independent"):
            yield self.finding(
                f"the rows of a batch influence each other{measured(item)}",
                "check batch_first and evaluation mode",
                where=item.where,
            )
