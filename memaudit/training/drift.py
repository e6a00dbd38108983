"""Whether a run moves the memory of its model: readings held against the first ones."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memaudit.training.reading import Reading

#: The margin is alarming at this part of the first one: the slowest mode is ten times slower.
LEAST_MARGIN = 0.1
#: The horizon is alarming below this part of the first one.
LEAST_HORIZON = 0.8
#: The gradient over weight is alarming at this multiple of the first one.
MOST_RATIO = 100.0


class Drift:
    """Remembers the first value of every quantity, and tells each alarm once."""

    def __init__(self) -> None:
        self._first: dict[str, float] = {}
        self._told: set[str] = set()

    def alarms(self, reading: Reading) -> list[str]:
        """Sentences about what has drifted since the first reading and was not told before."""
        found = {
            "margin": self._margin(reading.value("margin")),
            "horizon": self._horizon(reading),
            "gradient_over_weight": self._ratio(reading.value("gradient_over_weight")),
            "nonfinite": "" if reading.finite else _NONFINITE,
        }
        new = {name: said for name, said in found.items() if said and name not in self._told}
        self._told |= set(new)
        return [f"step {reading.step}: {said}" for said in new.values()]

    def _margin(self, value: float | None) -> str:
        if value is None or math.isnan(value):
            return ""
        if value <= 0.0:
            return (
                f"the slowest mode is on or behind the boundary of stability (margin {value:.3g})"
            )
        first = self._first.setdefault("margin", value)
        if value >= LEAST_MARGIN * first:
            return ""
        return f"the distance to the boundary of stability fell from {first:.3g} to {value:.3g}"

    def _horizon(self, reading: Reading) -> str:
        if reading.horizon is None:
            return ""
        # Beyond the window the horizon is at least as long as the window.
        value = min(reading.horizon, float(reading.window))
        first = self._first.setdefault("horizon", value)
        if value >= LEAST_HORIZON * first:
            return ""
        return f"the memory horizon fell from {first:g} to {value:g} steps"

    def _ratio(self, value: float | None) -> str:
        if value is None or not math.isfinite(value):
            return ""
        first = self._first.setdefault("gradient_over_weight", value)
        if value <= MOST_RATIO * first or first == 0.0:
            return ""
        return f"the largest gradient over weight rose from {first:.3g} to {value:.3g}"


_NONFINITE = "a recurrent weight or its gradient is no number any more"
