"""Which of several curves remembers longest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memaudit.numerics.envelope import SIGNAL_OVER_FLOOR

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memaudit.memory.result import Curve


def reach(curve: Curve) -> tuple[int, float, float]:
    """Growing beyond persistent beyond a horizon outside the window beyond one inside."""
    rank = {"growing": 3, "persistent": 2}.get(curve.decay.kind, 0)
    if rank == 0 and curve.horizon is None and len(curve.values):
        rank = int(curve.values[-1] > SIGNAL_OVER_FLOOR * curve.floor)
    return rank, float(curve.horizon or 0), curve.half_life or 0.0


def longest_of(layers: Mapping[str, Mapping[str, Curve]]) -> dict[str, Curve]:
    """Per query, the curve of the layer that remembers longest."""
    names = dict.fromkeys(name for curves in layers.values() for name in curves)
    return {name: max((c[name] for c in layers.values() if name in c), key=reach) for name in names}


def longest_layers(layers: Mapping[str, Mapping[str, Curve]]) -> dict[str, str]:
    """Per query, the layer that remembers longest, where the window can tell it from the others.

    Layers that all remember beyond the window, or not at all, are alike.
    """
    found: dict[str, str] = {}
    for name in dict.fromkeys(name for curves in layers.values() for name in curves):
        reached = {
            layer: reach(curves[name])[:2] for layer, curves in layers.items() if name in curves
        }
        best = max(reached.values())
        first, *others = [layer for layer, value in reached.items() if value == best]
        if not others and best > (0, 0.0):
            found[name] = first
    return found
