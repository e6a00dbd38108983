"""MA116: a linear layer does not run as its kernel says."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

from memaudit.contracts import AbstractRule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memaudit.closed_form.result import ClosedForm
    from memaudit.report import Finding, Report


class ClosedFormDisagrees(AbstractRule):
    """The answers of a linear layer are not those of its closed form."""

    code: ClassVar[str] = "MA116"
    name: ClassVar[str] = "closed-form-disagrees"
    severity: ClassVar[str] = "error"
    needs: ClassVar[tuple[str, ...]] = ("closed-form",)
    explanation: ClassVar[str] = (
        "The kernel of a linear time-invariant layer follows from its weights in closed form, and "
        "an impulse that is fed to the layer must be answered by that kernel. Here the two differ "
        "by more than rounding allows: 1e-6 of the largest memory in float64, 1e-3 in float32. "
        "Either the layer is run in another way than its weights say, or they were read wrongly: "
        "another discretization, another parameterization, a step size of another meaning. The "
        "curves of the whole model rest on the same reading. Distrust this audit, check the "
        "settings that were assumed, and report the model."
    )

    def check(self, report: Report) -> Iterable[Finding]:
        """One finding per layer whose answers leave its kernel."""
        for item in report.closed_form:
            if item.agrees is False:
                yield self.finding(
                    f"the layer and its closed form disagree ({_sizes(item)})",
                    "distrust this audit, check the assumed settings, and report the model",
                    where=f"{item.where}: {item.layer}" if item.where else item.layer,
                )


def _sizes(item: ClosedForm) -> str:
    if item.deviation is None or math.isinf(item.deviation):
        return "the answer is not finite where the kernel is, or not zero where it is"
    return (
        f"they differ by {item.deviation:.2g} of the largest memory, where rounding explains "
        f"{item.tolerance:.2g}"
    )
