"""MA302: the memory depends on the moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from memaudit.contracts import AbstractRule
from memaudit.findings.evidence import failed, measured

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memaudit.report import Finding, Report


class NotTimeHomogeneous(AbstractRule):
    """The same input gives another answer when it comes later."""

    code: ClassVar[str] = "MA302"
    name: ClassVar[str] = "not-time-homogeneous"
    severity: ClassVar[str] = "note"
    needs: ClassVar[tuple[str, ...]] = ("assumptions",)
    explanation: ClassVar[str] = (
        "The same input was fed at several offsets, and the answers differ by more than rounding. "
        "Models with positions, with an initial state that is not a fixed point, or with a "
        "normalization over time behave like this. The memory function then belongs to the "
        "moment at which it was measured. The residual is the spread over the offsets. Where it "
        "is large beside the curve, measure at the positions that occur in your data."
    )

    def check(self, report: Report) -> Iterable[Finding]:
        """One finding per failed measurement."""
        for item in failed(report, "time-homogeneous"):
            yield self.finding(
                f"the answer depends on when the input comes{measured(item)}",
                "read the curves as those of the start of a sequence",
                where=item.where,
            )
