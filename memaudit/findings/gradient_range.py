"""MA206: gradients are large beside the weights that they move."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from memaudit.contracts import AbstractRule
from memaudit.errors import clean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memaudit.gradient.result import Gradient, ReparamGradient
    from memaudit.report import Finding, Report

#: Times the median from which on modes of one layer cannot share a learning rate.
SPREAD = 100.0
#: Times the ratio of the recommended form from which on a change is worth its trouble.
WORSE = 10.0
#: By so much the rate of all weights has to be smaller than that of one to be told.
APART = 0.99


class GradientRange(AbstractRule):
    """One learning rate does not fit all modes of a recurrent layer."""

    code: ClassVar[str] = "MA206"
    name: ClassVar[str] = "gradient-range"
    severity: ClassVar[str] = "warning"
    needs: ClassVar[tuple[str, ...]] = ("gradient",)
    explanation: ClassVar[str] = (
        "All raw weights of a recurrent layer share one learning rate, so what counts is the "
        "gradient beside the weight that it moves. Here the largest ratio |dLoss/dw| / |w| of the "
        "parameterization that the layer has is more than 100 times its median, or more than 10 "
        "times that of the recommended reparameterization at the same eigenvalues: a step that "
        "suits most modes throws a few of them far away, often the slow ones that hold the "
        "memory. Fine-tune with the recommended form, or with a learning rate for that weight "
        "below the safe one in the report, and for all recurrent weights of the layer below the "
        "smaller one, if the finding has two; AdamW, which steps by about one "
        "learning rate whatever the gradient, needs one far below the smallest weight. The "
        "numbers depend on the loss: give your own batch to see those of your task."
    )

    def check(self, report: Report) -> Iterable[Finding]:
        """One finding per recurrent layer with such a ratio."""
        for item in report.gradient:
            current = _named(item, item.current)
            reasons = [] if current is None else list(_reasons(item, current))
            if current is not None and reasons:
                yield self.finding(
                    f"the largest gradient over weight of {clean(item.current)} is "
                    f"{current.largest:.3g}, {' and '.join(reasons)}",
                    _advice(item, current),
                    where=f"{item.where}: {item.layer}" if item.where else item.layer,
                )


def _reasons(item: Gradient, current: ReparamGradient) -> Iterable[str]:
    if current.largest > SPREAD * current.median:
        yield f"beside a median of {current.median:.3g}"
    better = _named(item, item.recommended)
    if better is not None and current.largest > WORSE * better.largest:
        yield f"where {better.name} has {better.largest:.3g} at the same eigenvalues"


def _advice(item: Gradient, current: ReparamGradient) -> str:
    """The safe rate of the weight behind the modes, and a smaller one that the others need."""
    rate, weight = current.learning_rate, clean(item.decay) or "the weight of its modes"
    safe = f"keep gradient descent on {weight} below {rate:.2g}"
    if item.own and 1.0 / item.own < APART * rate:
        safe += f", and on all its recurrent weights below {1.0 / item.own:.2g}"
    if not item.recommended or item.recommended == item.current:
        return safe
    return f"train it with {clean(item.recommended)}, or {safe}"


def _named(item: Gradient, name: str) -> ReparamGradient | None:
    return next((one for one in item.reparams if name and one.name == name), None)
