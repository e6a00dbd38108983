"""The largest beta at which a criterion holds, many betas at a time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

#: Betas that are asked together: a batch of them costs little more than one.
TOGETHER = 24
#: What fails at a beta so much smaller than `low` fails everywhere.
TINY = 2.0**-40


def narrowed(
    fails: Callable[[np.ndarray], np.ndarray], *, low: float, high: float, rtol: float
) -> float:
    """The largest beta below every one that fails, to a share of `rtol`.

    `fails` says of every beta of a rising row whether the criterion fails there. Infinite when it
    fails nowhere up to `high`, 0 when it fails everywhere.
    """
    first, holds = low, None
    while holds is None or high > holds * (1.0 + rtol):
        betas = np.geomspace(low, high, TOGETHER)
        beyond = np.flatnonzero(fails(betas if holds is None else betas[1:-1]))
        if holds is None and not len(beyond):
            return math.inf
        if holds is None and beyond[0] == 0:
            low, high = low * TINY**0.25, low
            if high <= first * TINY:
                return 0.0
            continue
        inner = betas if holds is None else betas[1:-1]
        at = int(beyond[0]) if len(beyond) else len(inner)
        below = inner[at - 1] if at else low
        high = inner[at] if at < len(inner) else high
        low = holds = float(below)
    return holds
