"""MA305: the model breaks an assumption that bounds or smoothness of its memory rest on."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from memaudit.contracts import AbstractRule
from memaudit.findings.evidence import failed, measured

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memaudit.report import Finding, Report

NAMES = ("bounded", "continuous", "regular")


class OutsideTheory(AbstractRule):
    """Bounded, continuous or regular: the theorems about memory ask for all three."""

    code: ClassVar[str] = "MA305"
    name: ClassVar[str] = "outside-theory"
    severity: ClassVar[str] = "note"
    needs: ClassVar[tuple[str, ...]] = ("assumptions",)
    explanation: ClassVar[str] = (
        "The theorems that tie the decay of memory to stability hold for functionals that are "
        "bounded, continuous and regular. The model was measured to break one of these: its gain "
        "grows without limit at the ends of the amplitudes, a tiny change of the input makes a "
        "large change of the answer, or inputs that vanish leave an answer that does not. The "
        "curves are still what was measured, but conclusions from the theory do not follow. "
        "Thresholds, square roots and chaotic dynamics are common reasons."
    )

    def check(self, report: Report) -> Iterable[Finding]:
        """One finding per broken assumption and place."""
        for name in NAMES:
            for item in failed(report, name):
                yield self.finding(
                    f"the model is not {name}{measured(item)}",
                    "read the curves as measurements only, and look at smaller inputs",
                    where=item.where,
                )
