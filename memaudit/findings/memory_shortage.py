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
        "sequences were fed, in more passes. Answers of a row alone and in a batch differ by "
        "rounding, so the numbers agree with those of a larger machine to about the floor of the "
        "curves, and the audit takes longer. To avoid it, close other programs, choose a smaller "
        "--horizon or --quick, or another --device."
    )

    def check(self, report: Report) -> Iterable[Finding]:
        """One finding with the size that fitted."""
        told = report.environment.get("memory", "")
        if told:
            advice = "the numbers are sound; more memory, --quick or a smaller --horizon is faster"
            yield self.finding(told, advice)
