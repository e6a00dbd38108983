"""The numbers of a memory curve, and of all the queries of a model."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from memaudit.reports import wording

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from memaudit.results import Curve

#: The number of a model is that of the query under which it remembers least.
LEAST: dict[str, Callable[[Iterable[float]], float]] = {
    **{"horizon": min, "half_life": min, "rate": max, "exponent": max, "support": min},
    "confidence": min,
}
BEYOND = "horizon_beyond"


def curve_numbers(curve: Curve) -> dict[str, float | None]:
    """The numbers of one curve; a horizon beyond the window is infinite, an unseen one None."""
    word, decay = wording.horizon(curve), curve.decay
    beyond = curve.horizon is None and word.startswith(">")
    return {
        "horizon": math.inf if beyond else curve.horizon,
        BEYOND: int(curve.lags[-1]) if beyond else None,
        "half_life": curve.half_life,
        "rate": decay.rate,
        "exponent": decay.exponent,
        "support": decay.support,
        "confidence": decay.confidence if len(curve.values) else None,
    }


def whole_numbers(memory: Mapping[str, Curve]) -> dict[str, float]:
    """The numbers of the model: of every kind the one that tells of the shortest memory."""
    rows = [curve_numbers(curve) for curve in memory.values()]
    told: dict[str, float] = {}
    for name, least in LEAST.items():
        known = [value for row in rows if (value := row[name]) is not None]
        if known:
            told[name] = float(least(known))
        if name == "horizon" and known and math.isinf(told[name]):
            told[BEYOND] = float(min(value for row in rows if (value := row[BEYOND]) is not None))
    return told
