"""From a memory curve to a verdict: which of the seven kinds of decay it shows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from memaudit.memory.result import Decay
from memaudit.numerics.envelope import SIGNAL_OVER_FLOOR, longest_dip
from memaudit.numerics.fits import Fit, exponential_fit, power_fit, sub_slopes

#: Fewer lags than this above ten times the floor decide nothing.
FEWEST_LAGS = 20
#: A change of the logarithm over the second half of the window that counts as none.
FLAT = 0.01
#: Jitter of oscillation peaks, as a change of the logarithm, beyond which nothing is flat.
WORST_JITTER = 0.05
#: Blocks of the window whose maxima all rise when the curve grows.
STAIRS = 6
#: Slope of the last quarter beside that of the one before: a straight line has 0.71, what
#: saturates has less.
SUSTAINED = 0.6
#: Rise of the logarithm over the second half that counts as growth below earlier values.
CLEAN_RISE = 1.0
#: Too few lags above the floor still show growth when they rise by this factor (in logarithms).
STEEP_RISE = 3.0
#: A fall from this far above the signal level to nothing within one lag is a cliff.
CLIFF = 100.0
#: sqrt(1 - R²) up to which a model describes the curve well, and at all.
GOOD_MISFIT, WORST_MISFIT = 0.05, 0.15
#: The better model must leave at most half of the other's residual.
DECISIVE = 2.0
#: A slope that drifts by more than this share of itself inside the window describes nothing.
WIDEST_INTERVAL = 0.5
#: Shift, as a share of the window, and exponent beyond which (t + c)^-alpha is no power law.
LATEST_SHIFT, STEEPEST_POWER = 0.2, 8.0
#: Decades below the largest value at which a verdict about the leading part may end.
LEADING_DECADES = (12, 9, 6, 4)
#: Starts of the fitted window, as shares of the measured one: transients are left out
#: only when the curve is not described with them.
STARTS = (0.0, 1 / 16, 1 / 8, 1 / 4, 1 / 2)


def classify(lags: np.ndarray, values: np.ndarray, floor: float) -> Decay:
    """The verdict on a curve of finite values at increasing lags, of which all are memory."""
    signal = values > SIGNAL_OVER_FLOOR * floor
    if not signal.any():
        return Decay("memoryless", window=_window(lags), confidence=1.0)
    end = int(np.flatnonzero(signal)[-1])
    finite = _finite(lags, values, floor, end)
    if finite is not None:
        return finite
    rows = np.flatnonzero(signal[: end + 1])
    t, log_m = lags[rows].astype(np.float64), np.log(values[rows])
    # The window may end in a dip like those before: the curve itself has not ended then.
    pause = longest_dip(values[: end + 1], SIGNAL_OVER_FLOOR * floor)
    unfinished = len(values) - 1 - end <= pause
    if len(rows) < FEWEST_LAGS:
        return _few_lags(t, log_m, at_end=unfinished)
    if unfinished:
        flat = _flat_or_growing(t, log_m)
        if flat is not None:
            return flat
    start = int(np.argmax(log_m))
    return _falling(t[start:], log_m[start:])


def _few_lags(t: np.ndarray, log_m: np.ndarray, *, at_end: bool) -> Decay:
    """Undetermined, but for a blow-up: its own last values set the floor of all before."""
    steps = np.diff(log_m)
    if at_end and len(t) >= 5 and (steps > 0).all() and steps.sum() > STEEP_RISE:
        fit = exponential_fit(t, log_m)
        return Decay("growing", rate=fit.slope, window=_window(t), confidence=0.5)
    return Decay("undetermined", window=_window(t))


def _window(lags: np.ndarray) -> tuple[int, int] | None:
    return (int(lags[0]), int(lags[-1])) if len(lags) else None


def _finite(lags: np.ndarray, values: np.ndarray, floor: float, end: int) -> Decay | None:
    """Finite when the curve drops to the floor from a level that decay would not explain."""
    quiet = len(values) - 1 - end
    level = SIGNAL_OVER_FLOOR * floor
    # An echo that is due may still come: the silence must outlast every pause before, the first
    # one included.
    pause = max(longest_dip(values[: end + 1], level), int(np.argmax(values > level)))
    if quiet < max(3, len(values) // 32, pause + 1):
        return None
    recent = values[max(end - 7, 0) : end + 1]
    half = max(len(recent) // 2, 1)
    before, after = recent[:half].max(), recent[-half:].max()
    # What the next lag would hold if the fall of the last lags went on.
    ratio = min(after / before, 1.0) ** (1 / half) if len(recent) > 1 and before > 0 else 0.1
    expected = values[end] * ratio
    if expected <= CLIFF * level:
        return None
    support = int(lags[end]) + 1
    confidence = float(1 - level / expected) if expected > 0 else 0.0
    return Decay("finite", window=_window(lags), support=support, confidence=confidence)


def _flat_or_growing(t: np.ndarray, log_m: np.ndarray) -> Decay | None:
    middle = int(np.searchsorted(t, (t[0] + t[-1]) / 2))
    late = exponential_fit(t[middle:], log_m[middle:])
    change = late.slope * (t[-1] - t[middle])
    window = _window(t)
    # Sampled peaks of an oscillation jitter; a change within that jitter is none either.
    smooth = len(late.used) == len(t) - middle
    jitter = min(2 * late.error * (t[-1] - t[middle]), WORST_JITTER)
    flat = FLAT if smooth else max(2 * FLAT, jitter)
    if abs(change) <= flat:
        return Decay("persistent", window=window, confidence=float(1 - abs(change) / (2 * flat)))
    if change > 0:
        return None
    # A fluctuating curve rises here and there: growth must reach new heights again and again, or
    # be a clean and large rise of the whole second half (an unstable mode from far below).
    heights = [block.max() for block in np.array_split(log_m, STAIRS)]
    higher = bool((np.diff(heights) > 0).all())
    clean = smooth and late.misfit <= GOOD_MISFIT and change <= -CLEAN_RISE
    if not (higher or clean):
        return Decay("undetermined", window=window)
    return _growing(t, log_m, window)


def _growing(t: np.ndarray, log_m: np.ndarray, window: tuple[int, int] | None) -> Decay:
    """Growing, unless the growth is dying out inside the window."""
    edges = np.searchsorted(t, t[0] + (t[-1] - t[0]) * np.array([0.5, 0.75]))
    third = exponential_fit(t[edges[0] : edges[1]], log_m[edges[0] : edges[1]])
    fourth = exponential_fit(t[edges[1] :], log_m[edges[1] :])
    if fourth.slope >= 0 or fourth.slope > SUSTAINED * third.slope:
        return Decay("undetermined", window=window)
    start = int(np.argmin(log_m))
    whole = exponential_fit(t[start:], log_m[start:])
    growth = -fourth.slope * (t[-1] - t[edges[1]])
    interval = _interval(whole, t[start:], log_m[start:])
    if interval[1] >= 0:  # beats of an oscillation rise for a while and fall again
        flat = abs(whole.slope) * (t[-1] - t[start]) <= WORST_JITTER
        return Decay("persistent" if flat else "undetermined", window=window, confidence=0.5)
    return Decay(
        "growing",
        rate=whole.slope,
        interval=interval,
        window=window,
        confidence=float(1 - np.exp(-growth / FLAT)),
    )


def _falling(t: np.ndarray, log_m: np.ndarray) -> Decay:
    """Exponential or polynomial over the longest window that one of the two lines describes.

    The whole window comes first. Where its end does not follow (a slow mode far below, say), the
    verdict is about the leading decades only, with half the confidence and its window said.
    """
    whole = _best_start(t, log_m)
    if whole.kind != "undetermined":
        return whole
    depth = log_m[0] - np.maximum.accumulate(log_m[::-1])[::-1]
    for decades in LEADING_DECADES:
        end = int(np.searchsorted(depth, decades * np.log(10)))
        if FEWEST_LAGS <= end < len(t):
            part = _best_start(t[:end], log_m[:end])
            if part.kind != "undetermined":
                return replace(part, confidence=part.confidence / 2)
    return whole


def _best_start(t: np.ndarray, log_m: np.ndarray) -> Decay:
    fitted: dict[int, tuple[Fit, Fit]] = {}
    starts = [int(np.searchsorted(t, t[0] + share * (t[-1] - t[0]))) for share in STARTS]
    starts = [first for first in starts if len(t) - first >= FEWEST_LAGS]
    for limit in (GOOD_MISFIT, WORST_MISFIT):
        for first in starts:
            if first not in fitted:
                tail = (t[first:], log_m[first:])
                fitted[first] = exponential_fit(*tail), power_fit(*tail)
            line, power = fitted[first]
            if min(line.misfit, power.misfit) <= limit:
                return _decide(t[first:], log_m[first:], line, power)
    return Decay("undetermined", window=_window(t))


def _decide(t: np.ndarray, log_m: np.ndarray, line: Fit, power: Fit) -> Decay:
    better, worse = sorted((line, power), key=lambda fit: fit.misfit)
    ratio = worse.misfit / max(better.misfit, 1e-12)
    bent = better is power and _imitates(power, t)
    if ratio < DECISIVE or bent:
        return Decay("undetermined", window=_window(t))
    confidence = float((1 - 1 / ratio) * (1 - better.misfit / WORST_MISFIT))
    if better is line:
        t, log_m, better = _settled_tail(t, log_m, line)
    interval = _interval(better, t, log_m)
    if interval[1] - interval[0] > WIDEST_INTERVAL * better.slope:
        return Decay("undetermined", window=_window(t))
    return Decay(
        "polynomial" if better is power else "exponential",
        rate=None if better is power else better.slope,
        exponent=better.slope if better is power else None,
        interval=interval,
        window=_window(t),
        confidence=confidence,
    )


def _imitates(power: Fit, t: np.ndarray) -> bool:
    """A shift at the end of its range, or a huge exponent, only bends a line to fit something."""
    late = power.shift is not None and power.shift > LATEST_SHIFT * (t[-1] - t[0])
    return late or power.slope > STEEPEST_POWER


def _settled_tail(
    t: np.ndarray, log_m: np.ndarray, line: Fit
) -> tuple[np.ndarray, np.ndarray, Fit]:
    """The second half of the window where faster modes still bend the first half."""
    middle = int(np.searchsorted(t, (t[0] + t[-1]) / 2))
    if len(t) - middle < FEWEST_LAGS:
        return t, log_m, line
    late = exponential_fit(t[middle:], log_m[middle:])
    if late.rms < line.rms / 2 and late.slope > 0:
        return t[middle:], log_m[middle:], late
    return t, log_m, line


def _interval(fit: Fit, t: np.ndarray, log_m: np.ndarray) -> tuple[float, float]:
    """Two standard errors, widened to the drift of the slope over thirds of the window."""
    wobble = 2 * fit.error
    if len(fit.used) < len(t):  # peaks of an oscillation: sampled beside the crest, in beats
        axis = fit.axis(t)
        wobble = max(2 * wobble, 8 * fit.rms / float(axis[-1] - axis[0]))
    slopes = [fit.slope - wobble, fit.slope + wobble, *sub_slopes(fit, t, log_m)]
    return min(slopes), max(slopes)
