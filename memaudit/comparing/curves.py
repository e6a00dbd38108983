"""Curves side by side: their verdicts, and where they lie farthest apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from memaudit.comparing.difference import SAME, Apart, Change
from memaudit.comparing.matching import Told, changes
from memaudit.memory.curve import HorizonStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memaudit.memory.result import Curve

    Layers = dict[str, dict[str, Curve]]

#: Where neither curve is above this there is nothing to compare.
_TINY = 1e-300


def curve_changes(before: Layers, after: Layers) -> tuple[Change, ...]:
    """One change per layer and query."""

    def told(layers: Layers) -> Iterator[Told]:
        for layer, curves in layers.items():
            for query, curve in curves.items():
                yield Told(query, layer, curve_facts(curve))

    def distance(change: Change) -> Apart | None:
        one = before.get(change.where, {}).get(change.name)
        other = after.get(change.where, {}).get(change.name)
        return None if one is None or other is None else apart(one, other)

    return changes(told(before), told(after), distance=distance)


def curve_facts(curve: Curve) -> dict[str, Any]:
    """The verdict about a curve; a horizon that is no lag is a word."""
    decay = curve.decay
    return {
        "kind": decay.kind,
        "rate": decay.rate,
        "exponent": decay.exponent,
        "support": decay.support,
        "interval": decay.interval,
        "half_life": curve.half_life,
        "horizon": _horizon(curve),
        "status": str(curve.status.value),
    }


def apart(before: Curve, after: Curve) -> Apart | None:
    """Where the curves lie farthest apart, as a ratio; None when their floors explain it.

    None, too, when they are in different units, or have no lag in common.
    """
    one, other = (np.asarray(c.lags)[: len(c.values)] for c in (before, after))
    if np.array_equal(one, other):  # mostly they do, and looking for what they share takes long
        lags, first, second = one, slice(len(one)), slice(len(one))
    else:
        lags, first, second = np.intersect1d(one, other, return_indices=True)
    if before.normalization != after.normalization or not len(lags):
        return None
    floor = max(before.floor, after.floor, _TINY)
    x, y = (np.maximum(c.values[at], floor) for c, at in ((before, first), (after, second)))
    noise = before.floor + after.floor + SAME * np.maximum(x, y)
    with np.errstate(invalid="ignore"):  # infinity beside infinity is no difference
        ratios = np.where(np.abs(x - y) > noise, np.abs(np.log(y) - np.log(x)), 0.0)
    # The first of those that rounding alone tells apart.
    far = int((ratios >= ratios.max() * (1.0 - 1e-9)).argmax())
    return Apart(int(lags[far]), float(x[far]), float(y[far])) if ratios[far] > 0.0 else None


def _horizon(curve: Curve) -> int | str:
    if curve.horizon is not None:
        return curve.horizon
    seen = curve.horizon_status
    if seen is HorizonStatus.BEYOND:
        return f"beyond {int(curve.lags[-1])}"
    return "none" if seen is HorizonStatus.NONE else "hidden by the floor"
