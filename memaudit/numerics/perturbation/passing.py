"""Where a measured E(beta) passes a bound, between the betas that were measured."""

from __future__ import annotations

import math

import numpy as np


def bracket(betas: np.ndarray, errors: np.ndarray, bound: float) -> tuple[float, float] | None:
    """The betas before and behind the passing; None when no error passes the bound.

    The first of them is 0 when the smallest beta is beyond already.
    """
    beyond = np.flatnonzero(~(errors <= bound))
    if not len(beyond):
        return None
    first = int(beyond[0])
    return (float(betas[first - 1]) if first else 0.0), float(betas[first])


def passing(betas: np.ndarray, errors: np.ndarray, bound: float, *, start: float = 0.0) -> float:
    """The beta at which E passes the bound, infinite when it never does.

    E is taken for a power of beta between two of them, and for straight between E(0) = `start`
    and the smallest one.
    """
    found = bracket(betas, errors, bound)
    if found is None:
        return math.inf
    low, high = found
    above = float(errors[np.flatnonzero(betas == high)[0]])
    if low == 0.0:
        return high * max(bound - start, 0.0) / (above - start)
    below = float(errors[np.flatnonzero(betas == low)[0]])
    if not math.isfinite(above) or below <= 0.0:
        return low
    share = math.log(bound / below) / math.log(above / below)
    return low * (high / low) ** share
