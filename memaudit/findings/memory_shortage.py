"""MA004: memory ran short, and smaller batches were fed."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from memaudit.contracts import AbstractRule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memaudit.results import Finding, Report


class MemoryShortage(AbstractRule):
    """The machine ran out of memory, and the audit went on in smaller pieces."""

    code: ClassVar[str] = "MA004"
    name: ClassVar[str] = "memory-shortage"
    severity: ClassVar[str] = "note"
    explanation: ClassVar[str] = (
        "A batch of sequences did not fit into the memory of the machine or of its accelerator, so "
        "it was halved, as often as it took, and the audit went on. Nothing was left out: the same "
        "sequences were fed, in more passes. For a model that treats the rows of a batch "
        "independently, a row alone and in a batch differ by rounding only: the numbers agree with "
        "those of a larger machine to about the floor of the curves, which may be higher, and the "
        "audit takes longer. Where the rows depend on each other, or where that could not be "
        "tested because only one row fitted at a time, the curves are those of smaller batches. "
        "More memory, another --device, --quick or a smaller --horizon avoid it."
    )

    def check(self, report: Report) -> Iterable[Finding]:
        """One finding with the size that fitted."""
        told = report.environment.get("memory", "")
        if not told:
            return
        rows = [a.holds for a in report.assumptions if a.name == "rows-independent"]
        if rows and all(rows):
            advice = "the numbers are sound; more memory, --quick or a smaller --horizon is faster"
        else:
            told += "; it is not known whether the rows of a batch are independent"
            advice = "give it more memory, --quick or a smaller --horizon: batch sizes may matter"
        yield self.finding(told, advice)
