"""Upper envelope of a memory curve, and the lags at which it falls below a level."""

from __future__ import annotations

import numpy as np

#: A value counts as signal from ten times the measured floor on.
SIGNAL_OVER_FLOOR = 10.0
#: A tail this close to the floor (as a factor) may be rounding noise that the floor missed.
SUSPECT_FACTOR = 1e4
#: Median |log step| of consecutive values beyond which a tail is rough: noise, not decay.
ROUGH_STEP = 0.2
#: A tail of so few different values, so few roundings of the peak above zero, has come to rest.
FROZEN_VALUES, RESTING_ROUNDINGS, LARGEST_REST = 2, 100.0, 1e-4
#: A rest of fixed size is at most this share of itself for probes of LOUDER times the size.
LOUDER, LOUDER_SHARE = 4.0, 0.5


def envelope(values: np.ndarray) -> np.ndarray:
    """Supremum of the values from each lag on, so that oscillation does not look like decay."""
    return np.maximum.accumulate(values[::-1])[::-1]


def noise_floor(
    values: np.ndarray, floor: float, rounding: float, louder: np.ndarray | None = None
) -> float:
    """The floor, raised to the level of a rough or a frozen tail just above it.

    eps·max|y| bounds the rounding of the last addition only; states much larger than the output
    cancel to more noise. A tail of the last quarter that jumps about near the floor is such noise,
    and so is one that has frozen a few roundings above it: runs that forget the same way may come
    to rest in neighbouring numbers. Such a rest does not grow with the input, so `louder`, the
    values of probes of larger size, do not show it; a memory they would.
    """
    length = max(len(values) // 4, 8)
    tail = values[-length:]
    tail = tail[tail > 0]
    resting = min(RESTING_ROUNDINGS * rounding, LARGEST_REST) * values.max(initial=0.0)
    frozen = len(tail) >= 8 and len(np.unique(tail)) <= FROZEN_VALUES
    if louder is not None and frozen and floor < tail.max() <= resting:
        heard = louder[-length:].max(initial=0.0) >= LOUDER_SHARE * tail.max()
        return floor if heard else float(tail.max())
    if floor <= 0 or len(tail) < 8 or tail.max() > SUSPECT_FACTOR * floor:
        return floor
    rough = float(np.median(np.abs(np.diff(np.log(tail)))))
    if rough < ROUGH_STEP or tail.max() <= SIGNAL_OVER_FLOOR * floor:
        return floor
    return float(np.quantile(tail, 0.95))


def horizon(lags: np.ndarray, values: np.ndarray, level: float) -> int | None:
    """The lag from which the envelope stays below `level`, or None when the window ends first.

    An oscillating curve may end its window in a dip; there the quiet stretch must be at least
    as long as the longest dip before it.
    """
    if len(values) == 0:
        return None
    below = envelope(values) < level
    if not below.any():
        return None
    first = int(np.argmax(below))
    quiet = len(values) - first
    if quiet <= longest_dip(values[:first], level):
        return None
    return int(lags[first])


def half_lag(lags: np.ndarray, values: np.ndarray) -> float | None:
    """Lags from the largest value until the envelope has halved, interpolated in the logarithm."""
    if len(values) == 0 or values.max() <= 0:
        return None
    peak = int(np.argmax(values))
    env = envelope(values)
    level = env[peak] / 2
    below = env <= level
    if not below.any():
        return None
    after = int(np.argmax(below))
    if len(values) - after <= longest_dip(values[peak:after], level):
        return None  # the window ends in a dip like those before
    high, low = env[after - 1], env[after]
    if low <= 0:
        return float(lags[after] - lags[peak])
    share = np.log(high / (env[peak] / 2)) / np.log(high / low)
    return float(lags[after - 1] + share * (lags[after] - lags[after - 1]) - lags[peak])


def longest_dip(values: np.ndarray, level: float) -> int:
    """Lags of the longest stretch below `level` after the first value above it."""
    longest = current = 0
    above = np.flatnonzero(values >= level)
    for low in values[above[0] :] < level if len(above) else ():
        current = current + 1 if low else 0
        longest = max(longest, current)
    return longest
