"""What the recurrent weights of a model say at one moment of training."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PREFIX = "memaudit/"
#: The measured quantities, by the names that are logged and that a run can be stopped on.
QUANTITIES = ("gradient_over_weight", "margin", "horizon")


@dataclass(frozen=True, slots=True)
class Reading:
    """The numbers of one step.

    `ratios` are the largest |gradient| / |w| of the raw recurrent weights by layer, `margins` the
    distances of the slowest modes to the boundary: 1 - |lambda| in discrete time, the rate itself
    in continuous time, before any step size. `horizon` is the memory horizon in steps, infinite
    when it lies beyond the `window` that was measured, None when it was not.
    `finite` is False when a raw weight or its gradient is no number any more.
    """

    step: int
    ratios: dict[str, float] = field(default_factory=dict)
    margins: dict[str, float] = field(default_factory=dict)
    horizon: float | None = None
    window: int = 0
    finite: bool = True

    def value(self, name: str) -> float | None:
        """The quantity of the whole model: the largest ratio, the smallest margin, the horizon."""
        if name == "gradient_over_weight":
            return extreme(self.ratios.values(), max) if self.ratios else None
        if name == "margin":
            return extreme(self.margins.values(), min) if self.margins else None
        return self.horizon

    def logs(self) -> dict[str, float]:
        """The numbers by the names that are logged, those of the layers behind a slash.

        A horizon beyond the window is no number: the window is logged as `horizon_beyond`.
        """
        told: dict[str, float] = {}
        for name, layers in (("gradient_over_weight", self.ratios), ("margin", self.margins)):
            whole = self.value(name)
            if whole is not None:
                told[PREFIX + name] = whole
                told |= {f"{PREFIX}{name}/{layer}": value for layer, value in layers.items()}
        if self.horizon is not None:
            beyond = math.isinf(self.horizon)
            name = "horizon_beyond" if beyond else "horizon"
            told[PREFIX + name] = float(self.window) if beyond else self.horizon
        return told


def extreme(values: Iterable[float], which: Callable[[Iterable[float]], float]) -> float:
    """The largest, or the smallest; one that is no number does not hide behind the others."""
    known = list(values)
    return math.nan if any(math.isnan(value) for value in known) else which(known)
