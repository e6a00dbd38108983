"""How a memory curve falls: kind of decay, horizon, half-life; numpy alone.

The decay is found by straight lines through the peaks of the
logarithm of the curve, over the lag (exponential) or over the logarithm of the lag (power law).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from memaudit.numerics.verdict import SIGNAL_OVER_FLOOR, Decay


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
    return None if level < SIGNAL_OVER_FLOOR * floor else horizon_lag(lags, values, level)


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


# Envelope and floor

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
        seen = louder[-length:].max(initial=0.0) >= LOUDER_SHARE * tail.max()
        return floor if seen else float(tail.max())
    if floor <= 0 or len(tail) < 8 or tail.max() > SUSPECT_FACTOR * floor:
        return floor
    rough = float(np.median(np.abs(np.diff(np.log(tail)))))
    if rough < ROUGH_STEP or tail.max() <= SIGNAL_OVER_FLOOR * floor:
        return floor
    return float(np.quantile(tail, 0.95))


def horizon_lag(
    lags: np.ndarray, values: np.ndarray, level: float, *, between: bool = False
) -> int | None:
    """The lag from which the envelope stays below `level`, or None when the window ends first.

    An oscillating curve may end its window in a dip; there the quiet stretch must be at least
    as long as the longest dip before it. With `between` the logarithm is a straight line between
    two lags that are not neighbours; without, the later one counts.
    """
    if len(values) == 0:
        return None
    env = envelope(values)
    below = env < level
    if not below.any():
        return None
    first = int(np.argmax(below))
    quiet = len(values) - first
    if quiet <= longest_dip(values[:first], level):
        return None
    if not between or first == 0 or env[first] <= 0 or lags[first] == lags[first - 1] + 1:
        return int(lags[first])
    share = np.log(env[first - 1] / level) / np.log(env[first - 1] / env[first])
    return int(lags[first - 1] + max(1, np.ceil(share * (lags[first] - lags[first - 1]))))


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


# The kind of decay

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
#: Local rates within this share of each other are one rate.
ONE_RATE = 0.1
#: Shift, as a share of the window, and exponent beyond which (t + c)^-alpha is no power law.
LATEST_SHIFT, STEEPEST_POWER = 0.2, 6.0
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
    # An echo that is due may still come: the zeros must outlast every pause before, the first
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
    if whole.kind == "polynomial":
        return _exponential_tail(t, log_m) or whole
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


def _exponential_tail(t: np.ndarray, log_m: np.ndarray) -> Decay | None:
    """Exponential where one mode explains the second half, however well a power law fits it all.

    The local rate of a power law falls by a half over that stretch, that of one mode stays.
    """
    middle = int(np.searchsorted(t, (t[0] + t[-1]) / 2))
    if len(t) - middle < FEWEST_LAGS:
        return None
    t, log_m = t[middle:], log_m[middle:]
    late = exponential_fit(t, log_m)
    rates = sub_slopes(late, t, log_m, pieces=4)
    if len(rates) < 2 or min(rates) <= 0 or max(rates) > (1 + ONE_RATE) * min(rates):
        return None
    interval = _interval(late, t, log_m)
    confidence = float(1 - (max(rates) / min(rates) - 1) / (2 * ONE_RATE))
    return Decay("exponential", late.slope, None, interval, _window(t), confidence)


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


# Straight lines

#: Peak picking goes on while at least this many peaks are left; a mere bend has one or two.
FEWEST_PEAKS = 4
#: With a residual below this the points are an envelope already: more peaks must be left.
SHALLOW, FEWEST_SHALLOW_PEAKS = 0.1, 8
#: No stretch of the window without a peak may be longer than this share of it.
WIDEST_GAP = 0.4
#: Residuals of a noise-free curve: rounding of the logarithm, not oscillation.
FIT_ROUNDING = 1e-7
#: Shifts c of (t + c)^-alpha tried on each of a few ever finer grids; more than a quarter of the
#: window would imitate an exponential.
SHIFTS, ZOOMS = 32, 5
#: Points that the search for the shift looks at; the line itself goes through all of them.
SEARCH_POINTS = 512


@dataclass(frozen=True, slots=True)
class Fit:
    """log M = intercept - slope·g(t), with g(t) = t or g(t) = log(t + shift).

    `used` are the indices of the points that carried the fit, `rms` their residual and `misfit`
    the residual as a share of the spread: sqrt(1 - R²).
    """

    slope: float
    intercept: float
    shift: float | None
    rms: float
    misfit: float
    error: float
    used: np.ndarray

    def axis(self, t: np.ndarray) -> np.ndarray:
        """The abscissa in which this model is a straight line."""
        return t if self.shift is None else np.log(t + self.shift)


def exponential_fit(t: np.ndarray, log_m: np.ndarray) -> Fit:
    """Fit log M = a - beta·t through the upper points."""
    return _through_peaks(t, log_m, lambda rows: _line(t[rows], log_m[rows], None, rows))


def power_fit(t: np.ndarray, log_m: np.ndarray) -> Fit:
    """Fit log M = a - alpha·log(t + c) through the upper points, with the best shift c."""
    return _through_peaks(t, log_m, lambda rows: _best_shift(t, log_m, rows))


def sub_slopes(fit: Fit, t: np.ndarray, log_m: np.ndarray, pieces: int = 3) -> list[float]:
    """The slope over consecutive pieces of the window: how much it drifts inside."""
    groups = [group for group in np.array_split(fit.used, pieces) if len(group) >= 4]
    axis = fit.axis(t)
    return [_slope(axis[group], log_m[group]) for group in groups]


def _through_peaks(t: np.ndarray, log_m: np.ndarray, solve: Callable[[np.ndarray], Fit]) -> Fit:
    rows = np.arange(len(t))
    fit = solve(rows)
    while fit.rms > FIT_ROUNDING:
        residual = log_m[rows] - (fit.intercept - fit.slope * fit.axis(t[rows]))
        peaks = np.flatnonzero((residual[1:-1] >= residual[:-2]) & (residual[1:-1] > residual[2:]))
        fewest = FEWEST_PEAKS if fit.rms > SHALLOW else FEWEST_SHALLOW_PEAKS
        if len(peaks) < fewest or not _spread(t[rows[peaks + 1]], t):
            break
        if _depth(residual, peaks + 1) < fit.rms / 2:
            break
        rows = rows[peaks + 1]
        fit = solve(rows)
    return fit


def _spread(peaks: np.ndarray, t: np.ndarray) -> bool:
    """Whether peaks stand all over the window; a ripple at its start is no oscillation."""
    gaps = np.diff(np.concatenate([t[:1], peaks, t[-1:]]))
    return bool(gaps.max() <= WIDEST_GAP * (t[-1] - t[0]))


def _depth(residual: np.ndarray, peaks: np.ndarray) -> float:
    """How deep the curve dips between its peaks; ripples on a bend are shallow."""
    dips = np.minimum.reduceat(residual, peaks)[:-1]
    return float(np.median(residual[peaks[:-1]] - dips))


def _line(x: np.ndarray, y: np.ndarray, shift: float | None, rows: np.ndarray) -> Fit:
    mean = x.mean()
    spread = ((x - mean) ** 2).sum()
    slope = ((x - mean) * (y - y.mean())).sum() / spread if spread > 0 else 0.0
    intercept = y.mean() - slope * mean
    residual = y - (intercept + slope * x)
    rms = float(np.sqrt((residual**2).mean()))
    scale = float(y.std())
    error = rms / np.sqrt(spread) * np.sqrt(len(x) / max(len(x) - 2, 1)) if spread > 0 else 0.0
    # Free parameters are paid for, or four points would suit the model with three of them.
    free = 2 if shift is None else 3
    misfit = rms / scale * np.sqrt(len(x) / max(len(x) - free, 0.1)) if scale > 0 else 0.0
    return Fit(float(-slope), float(intercept), shift, rms, float(misfit), float(error), rows)


def _best_shift(t: np.ndarray, log_m: np.ndarray, rows: np.ndarray) -> Fit:
    x, y = t[rows], log_m[rows]
    thin = slice(None, None, max(1, len(x) // SEARCH_POINTS))
    left = 0.25 - min(x[0], 0.0) if x[0] < 1 else 1e-3
    right = max(4.0, (t[-1] - t[0]) / 4)
    shift = left
    for _ in range(ZOOMS):
        grid = np.geomspace(left, right, SHIFTS)
        best = int(np.argmin(_residuals(np.log(x[thin] + grid[:, None]), y[thin])))
        left, right = grid[max(best - 1, 0)], grid[min(best + 1, SHIFTS - 1)]
        shift = float(grid[best])
    return _line(np.log(x + shift), y, shift, rows)


def _residuals(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Mean squared residual of the best line for every row of abscissas."""
    x = x - x.mean(1, keepdims=True)
    y = y - y.mean()
    spread = (x**2).sum(1)
    slope = (x * y).sum(1) / np.where(spread > 0, spread, 1.0)
    return ((y - slope[:, None] * x) ** 2).mean(1)


def _slope(x: np.ndarray, y: np.ndarray) -> float:
    centred = x - x.mean()
    spread = (centred**2).sum()
    return float(-(centred * y).sum() / spread) if spread > 0 else 0.0
