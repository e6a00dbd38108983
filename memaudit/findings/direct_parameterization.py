"""MA203: nothing keeps the recurrent weights inside the stable set."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from memaudit.contracts import AbstractRule
from memaudit.findings.margins import margins

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memaudit.results import Finding, Report, Spectrum

#: Stored as they are, or by functions that reach the boundary at a finite weight.
OPEN = ("direct", "relu", "clip")


class DirectParameterization(AbstractRule):
    """Recurrent weights are trained as they are, or by a function that reaches the boundary."""

    code: ClassVar[str] = "MA203"
    name: ClassVar[str] = "direct-parameterization"
    severity: ClassVar[str] = "note"
    needs: ClassVar[tuple[str, ...]] = ("spectrum",)
    explanation: ClassVar[str] = (
        "The recurrent weights of these layers are stored directly, or through relu or clip, with "
        "which a finite step of the weights reaches the boundary of stability. Nothing is wrong "
        "with the model as it is. While it is trained on, nothing keeps its modes from crossing "
        "the boundary, and by StableSSM the longer the memory, the smaller the steps must be. "
        "Other parameterizations, such as exp or softplus of the weight, never reach it. Watch the "
        "margin while fine-tuning, or take a smaller learning rate for these weights."
    )

    def check(self, report: Report) -> Iterable[Finding]:
        """One finding per place, with the smallest margin of its layers."""
        for where, items in margins(
            report, lambda item: item.parameterization.partition(" (")[0] in OPEN
        ):
            yield self.finding(
                _sentence(items),
                "watch the margin while fine-tuning, or take a smaller learning rate for them",
                where=where,
            )


def _sentence(items: list[Spectrum]) -> str:
    forms = " and ".join(dict.fromkeys(item.parameterization for item in items))
    count = f"{len(items)} recurrences are" if len(items) > 1 else f"{items[0].layer} is"
    return (
        f"{count} parameterized by {forms}; nothing keeps the modes inside, and the smallest "
        f"margin is {items[0].margin:.2g} ({items[0].layer})"
    )
