"""Horizon and half-life of a curve whose kind of decay is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memaudit.numerics.envelope import SIGNAL_OVER_FLOOR, half_lag, horizon

if TYPE_CHECKING:
    from memaudit.memory.result import Decay


def horizon_of(
    decay: Decay, lags: np.ndarray, values: np.ndarray, *, floor: float, epsilon: float
) -> int | None:
    """The lag from which the envelope stays below epsilon of its top; None when it is not seen."""
    if decay.kind == "memoryless":
        return 0
    if decay.kind == "growing":
        return None
    level = epsilon * float(values.max())
    # Below ten times the floor the envelope is not known any more.
    return None if level < SIGNAL_OVER_FLOOR * floor else horizon(lags, values, level)


def half_life_of(
    decay: Decay, lags: np.ndarray, values: np.ndarray, *, floor: float
) -> float | None:
    """The lag of half the top, or what the rate says where that is not seen."""
    if decay.kind in ("memoryless", "persistent", "growing"):
        return None
    hidden = float(values.max()) / 2 < SIGNAL_OVER_FLOOR * floor
    seen = None if hidden else half_lag(lags, values)
    if seen is None and decay.kind == "exponential" and decay.rate:
        return float(np.log(2) / decay.rate)
    return seen
