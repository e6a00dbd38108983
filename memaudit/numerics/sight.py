"""What the window of a curve shows of its horizon."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from memaudit.memory.result import Status
from memaudit.numerics.envelope import SIGNAL_OVER_FLOOR

if TYPE_CHECKING:
    from memaudit.memory.result import Curve

#: With these the window ended before anything could be said about the horizon.
UNREAD = (
    *(Status.NOT_MEASURED, Status.BELOW_FLOOR, Status.TOO_FEW_LAGS),
    *(Status.NO_TOKENS, Status.NO_TOKENIZER, Status.UNKNOWN_TEXT, Status.TOO_SHORT),
)
#: These have no horizon, whatever the floor is.
ENDLESS = ("memoryless", "persistent", "growing")


class Sight(StrEnum):
    """Where the horizon of a curve is, as far as anybody can see."""

    INSIDE = "inside the window"
    BEYOND = "beyond the window"
    HIDDEN = "hidden by the floor"
    NONE = "nowhere: there was no memory to see"


def sight(curve: Curve) -> Sight:
    """Where the horizon of a curve is."""
    if curve.horizon is not None:
        return Sight.INSIDE
    if curve.status in UNREAD or curve.decay.kind == "memoryless" or not len(curve.lags):
        return Sight.NONE
    return Sight.HIDDEN if hidden(curve) else Sight.BEYOND


def hidden(curve: Curve) -> bool:
    """Whether the curve sinks into its floor before it has fallen to epsilon."""
    _, values = remembered(curve)
    if curve.horizon is not None or curve.decay.kind in ENDLESS or not len(values):
        return False
    heard = SIGNAL_OVER_FLOOR * curve.floor
    return bool(curve.epsilon * values.max() < heard and values[-1] <= heard)


def remembered(curve: Curve) -> tuple[np.ndarray, np.ndarray]:
    """Lags and values of memory.

    Lag 0 counts only where the verdict does: with an impulse it is the present, not memory.
    """
    first = 1 if curve.decay.window is None else min(curve.decay.window[0], 1)
    lags = np.asarray(curve.lags)[: len(curve.values)]
    return lags[lags >= first], curve.values[lags >= first]
