"""Numbers of a curve in the words that every report uses."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memaudit.memory.result import Curve

NOTHING = "-"
UNKNOWN = "?"
HIDDEN = "the floor hides the horizon"


def strength(curve: Curve) -> str:
    """The number that belongs to the kind: `rate 0.0513`, `exponent 1.2`, `support 10`."""
    decay = curve.decay
    if decay.exponent is not None:
        return f"exponent {decay.exponent:.4g}"
    if decay.rate is not None:
        return f"rate {decay.rate:.4g}"
    if decay.support is not None:
        return f"support {decay.support}"
    return NOTHING


def interval(curve: Curve) -> str:
    """The interval of that number in brackets, or nothing."""
    pair = curve.decay.interval
    return "" if pair is None else f"[{pair[0]:.4g}, {pair[1]:.4g}]"


def window(curve: Curve) -> str:
    """The lags that the verdict rests on."""
    pair = curve.decay.window
    return NOTHING if pair is None else f"{pair[0]}-{pair[1]}"


def half_life(curve: Curve) -> str:
    """Lags until the memory has halved."""
    return NOTHING if curve.half_life is None else f"{curve.half_life:.4g}"


def horizon(curve: Curve) -> str:
    """The horizon, or that it lies beyond the last lag, `> 512`, or that nobody can see it, `?`."""
    return curve.horizon_text


def confidence(curve: Curve) -> str:
    """How sure the verdict about the decay is, from 0 to 1."""
    return f"{curve.decay.confidence:.2f}"


def probes(curve: Curve, *, narrow: bool = False) -> str:
    """How many probes were tried, what the supremum is worth, and the size that holds it last.

    A narrow cell has two lines.
    """
    gap = "\n" if narrow else " "
    if curve.normalization == "none":  # tokens, not probe vectors
        return f"{curve.probes} trial{'s' if curve.probes != 1 else ''}"
    if curve.exact:
        return f"{curve.probes}, exact"
    if curve.holder is None:
        return f"{curve.probes}, lower{gap}bound"
    return f"{curve.probes}, sup at{gap}|x| {curve.holder:.3g}"


def number(value: float | None) -> str:
    """A measured number in three digits."""
    return NOTHING if value is None else f"{value:.3g}"


def endless(value: float) -> str:
    """A measured number in four digits, or the word for one without end."""
    return "infinite" if math.isinf(value) else f"{value:.4g}"
