"""The largest beta at which a criterion holds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

#: Halvings below `low` after which a criterion that never holds has the radius 0.
MOST_HALVINGS = 40


def bisect(holds: Callable[[float], bool], *, low: float, high: float, rtol: float = 1e-3) -> float:
    """The largest beta at which `holds` was seen to be true, to a share of `rtol`.

    It goes up from `low` in doublings, or down in halvings when it fails there. A criterion that
    still holds at `high` has an infinite radius, one that holds nowhere has the radius 0.
    `holds` must be monotone: what fails at one beta fails at every larger one. If it is not, the
    beta between two neighbours that were asked, of which one fails, is returned.
    """
    inside, outside = _bracket(holds, low, high)
    if not 0.0 < inside < outside < math.inf:
        return inside
    while outside > inside * (1.0 + rtol):
        middle = math.sqrt(inside * outside)
        if holds(middle):
            inside = middle
        else:
            outside = middle
    return inside


def _bracket(holds: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """A beta that holds and one that fails; the first is infinite or 0 when there is no other."""
    if not holds(low):
        for halvings in range(1, MOST_HALVINGS + 1):
            beta = low * 2.0**-halvings
            if holds(beta):
                return beta, 2.0 * beta
        return 0.0, low
    beta = low
    while beta < high:
        following = min(2.0 * beta, high)
        if not holds(following):
            return beta, following
        beta = following
    return math.inf, math.inf
