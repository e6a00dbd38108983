"""Eigenvalues before and after a change: which became which, how far, and who left the circle."""

from __future__ import annotations

import numpy as np

#: Up to so many modes every one is looked for; a diagonal layer with more has them in order.
MOST_PAIRED = 2048
#: A mode this near to the circle is on it: moduli of complex numbers round a few times.
ON_CIRCLE = 8 * np.finfo(np.float64).eps


def paired(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """The modes of `after` in the order of `before`, so that the largest change is small.

    Either in the order that they have, which is that of the weights of a diagonal layer, or each
    by its nearest neighbour, the slowest first: a decomposition gives them in any order.
    """
    if len(before) != len(after) or len(before) > MOST_PAIRED:
        return after
    free = after.copy()
    nearest = np.empty_like(after)
    for place in np.argsort(-np.abs(before), kind="stable"):
        chosen = int(np.argmin(np.abs(free - before[place])))
        nearest[place] = free[chosen]
        free = np.delete(free, chosen)
    return min((after, nearest), key=lambda found: float(np.abs(found - before).max(initial=0.0)))


def shift(before: np.ndarray, after: np.ndarray) -> float | None:
    """The largest change of a mode; None when there are more or fewer than before."""
    if len(before) != len(after):
        return None
    return float(np.abs(paired(before, after) - before).max(initial=0.0))


def reached(before: np.ndarray, after: np.ndarray) -> int:
    """Modes that were inside of the unit circle and are now on it or beyond."""
    inside, outside = np.abs(before) < 1 - ON_CIRCLE, np.abs(after) >= 1 - ON_CIRCLE
    if len(before) != len(after):
        return max(0, int(outside.sum()) - int((~inside).sum()))
    return int((inside & (np.abs(paired(before, after)) >= 1 - ON_CIRCLE)).sum())
