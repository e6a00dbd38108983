"""Numbers of a curve in the words that every report uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memaudit.results import Status

if TYPE_CHECKING:
    from memaudit.results import Assumption, Curve

NOTHING = "-"
#: With these the window ended before anything could be said about the horizon.
UNREAD = (Status.NOT_MEASURED, Status.BELOW_FLOOR, Status.TOO_FEW_LAGS)


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
    """The horizon, or that it lies beyond the last lag: `> 512`."""
    if curve.horizon is not None:
        return str(curve.horizon)
    if curve.status in UNREAD or curve.decay.kind == "memoryless" or not len(curve.lags):
        return NOTHING
    return f"> {int(curve.lags[-1])}"


def probes(curve: Curve) -> str:
    """How many probes were tried, and what the supremum over them is worth."""
    return f"{curve.probes}, {'exact' if curve.exact else 'lower bound'}"


def verdict(assumption: Assumption) -> str:
    """Whether an assumption holds."""
    return {True: "holds", False: "fails", None: "not measured"}[assumption.holds]


def number(value: float | None) -> str:
    """A measured number in three digits."""
    return NOTHING if value is None else f"{value:.3g}"
