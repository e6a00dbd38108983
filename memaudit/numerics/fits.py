"""Straight lines through the peaks of a logarithmic curve: exponential and power-law fits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

#: Peak picking goes on while at least this many peaks are left; a mere bend has one or two.
FEWEST_PEAKS = 4
#: With a residual below this the points are an envelope already: more peaks must be left.
SHALLOW, FEWEST_SHALLOW_PEAKS = 0.1, 8
#: No stretch of the window without a peak may be longer than this share of it.
WIDEST_GAP = 0.4
#: Residuals of a noise-free curve: rounding of the logarithm, not oscillation.
ROUNDING = 1e-7
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


def _through_peaks(t, log_m, solve) -> Fit:  # type: ignore[no-untyped-def]
    rows = np.arange(len(t))
    fit = solve(rows)
    while fit.rms > ROUNDING:
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
