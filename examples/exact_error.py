"""The largest error of a diagonal linear system whose eigenvalues move, exactly.

The answer is a sum over modes, y(t) = Re sum_i c_i p_it(lam_i), with the polynomials
p_it(z) = sum_s z^s v_i(t-s) of the drive v_i(t) = b_i u(t). When every eigenvalue moves within a
set of its own, the extremes of a sum are the sums of extremes, mode by mode. The same is true of
the Sobolev norm, because |a| + |a - b| = max(|b|, |2a - b|), which again are sums over modes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from memaudit.errors import ArgumentError

#: The norms whose supremum separates into modes.
EXACT_NORMS = ("sobolev", "sup")
#: Cells of a path, in which extremes are interpolated by cubics: the fewest, the most, and how
#: many steps make one for every unit of its length. lam^t turns within 1/t.
FEWEST_CELLS, MOST_CELLS, CELLS_PER_STEP = 16, 512, 10


@dataclass(frozen=True, slots=True, eq=False)
class Diagonal:
    """One output of a diagonal system: eigenvalues (m,), readout (m,) and drive (m,T)."""

    eigenvalues: np.ndarray
    readout: np.ndarray
    drive: np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class _Paths:
    """Where the eigenvalues may go: points (m,pieces,cells+1), and how fast they go along."""

    points: np.ndarray
    speeds: np.ndarray


def driven(eigenvalues: np.ndarray, weights: np.ndarray, inputs: np.ndarray) -> Diagonal:
    """The system y(t) = sum_i w_i sum_s lam_i^s u(t-s) with w_i = c_i b_i under inputs u (T,)."""
    drive = np.broadcast_to(inputs, (len(eigenvalues), len(inputs)))
    return Diagonal(np.asarray(eigenvalues), np.asarray(weights), drive)


def direct_error(
    system: Diagonal,
    beta: float,
    *,
    norm: str = "sobolev",
    apart: bool = False,
    reference: np.ndarray | None = None,
) -> float:
    """E(beta) when each eigenvalue moves by beta at most, as stored: the max-abs ball.

    Complex eigenvalues move within a disc, or within a square when real and imaginary part are
    weights of their own (`apart`); the real part of an analytic function is largest on the rim.
    The error is against `reference` (T,), or against the system as it is.
    """
    lam = system.eigenvalues
    if not np.iscomplexobj(lam):
        return error_between(system, lam - beta, lam + beta, norm=norm, reference=reference)
    along = _along(2.0 * np.pi * beta, system)
    paths = _squares(lam, beta, along) if apart else _circles(lam, beta, along)
    return _largest(system, paths, norm, reference)


def error_between(
    system: Diagonal,
    low: np.ndarray,
    high: np.ndarray,
    *,
    norm: str = "sobolev",
    reference: np.ndarray | None = None,
) -> float:
    """The largest error when real eigenvalues may be anywhere between `low` and `high` (m,).

    For lam = f(w) with a monotone f these are f(w - beta) and f(w + beta), in rising order.
    """
    low, high = (np.asarray(end, float)[:, None, None] for end in (low, high))
    along = _along(float((high - low).max()), system)
    paths = _Paths(low + (high - low) * along, (high - low) * np.ones_like(along))
    return _largest(system, paths, norm, reference)


def radius_direct(eigenvalues: np.ndarray, *, time: str = "discrete", apart: bool = False) -> float:
    """The largest beta that leaves every mode inside: min(1 - |lam|), or min(-Re lam).

    `time` is "discrete" or "continuous". Where real and imaginary part are weights of their own
    (`apart`), the nearest point of the circle is reached along a diagonal of the square.
    """
    lam = np.asarray(eigenvalues)
    if time == "continuous":
        distances = -np.real(lam)
    elif apart and np.iscomplexobj(lam):
        total = np.abs(np.real(lam)) + np.abs(np.imag(lam))
        distances = (
            np.sqrt(np.maximum(total**2 - 2.0 * np.abs(lam) ** 2 + 2.0, 0.0)) - total
        ) / 2.0
    else:
        distances = 1.0 - np.abs(lam)
    return max(float(distances.min()), 0.0)


def _largest(system: Diagonal, paths: _Paths, norm: str, reference: np.ndarray | None) -> float:
    """The supremum over the paths, one time after the other."""
    if norm not in EXACT_NORMS:
        hint = "the exact ones are " + " and ".join(EXACT_NORMS)
        raise ArgumentError(f"E(beta) in the norm {norm!r} does not separate into modes", hint=hint)
    target = _answers(system) if reference is None else np.asarray(reference, float)
    worst = 0.0
    last, last_target = (np.zeros(paths.points.shape),) * 2, 0.0
    value = slope = np.zeros_like(paths.points)
    readout = system.readout[:, None, None]
    with np.errstate(over="ignore", invalid="ignore"):
        for t, now in enumerate(target):
            value, slope = (
                paths.points * value + system.drive[:, t, None, None],
                value + paths.points * slope,
            )
            mode = np.real(readout * value), np.real(readout * slope * paths.speeds)
            worst = max(worst, _reach(mode, now))
            if norm == "sobolev":
                ahead = tuple(2.0 * a - b for a, b in zip(mode, last, strict=True))
                worst = max(worst, _reach(ahead, 2.0 * now - last_target))
            last, last_target = mode, now
            if not math.isfinite(worst):
                return math.inf
    return worst


def _answers(system: Diagonal) -> np.ndarray:
    state = np.zeros_like(system.eigenvalues * system.readout)
    found = []
    for now in system.drive.T:
        state = system.eigenvalues * state + now
        found.append(np.real((system.readout * state).sum()))
    return np.array(found)


def _reach(mode: tuple[np.ndarray, ...], target: float) -> float:
    """The supremum of |sum_i f_i - target|, from f_i and its derivative along the paths."""
    f, df = mode
    if not (np.isfinite(f).all() and np.isfinite(df).all()):
        return math.inf
    return max(_tops(f, df).sum() - target, _tops(-f, -df).sum() + target)


def _tops(f: np.ndarray, df: np.ndarray) -> np.ndarray:
    """The maxima (m,) of functions along paths (m,pieces,cells+1), between the points too."""
    found = f.max((1, 2))
    cells = df.shape[-1] - 1
    d0, d1 = df[..., :-1] / cells, df[..., 1:] / cells
    summits = np.nonzero((d0 > 0) & (d1 < 0))
    if not len(summits[0]):
        return found
    f0, rise = f[..., :-1][summits], np.diff(f, axis=-1)[summits]
    d0, d1 = d0[summits], d1[summits]
    # Slopes of 1e-200 are slopes, but their squares are not.
    unit = np.maximum(np.maximum(d0, -d1), np.abs(rise))
    rise, d0, d1 = rise / unit, d0 / unit, d1 / unit
    # The cubic through both values and slopes has the slope c + b s + a s^2, which falls through
    # zero once inside the cell; the two ways to write that root differ in what cancels.
    a, b, c = 3.0 * (d0 + d1 - 2.0 * rise), 2.0 * (3.0 * rise - 2.0 * d0 - d1), d0
    q = (np.abs(b) + np.sqrt(np.maximum(b * b - 4.0 * a * c, 0.0))) / 2.0
    s = np.where(b > 0.0, -q, c) / np.where(b > 0.0, a, q)
    s = np.clip(s, 0.0, 1.0)
    np.maximum.at(found, summits[0], f0 + unit * s * (c + s * (b / 2.0 + s * a / 3.0)))
    return found


def _along(length: float, system: Diagonal) -> np.ndarray:
    """The way along a path, from 0 to 1, in cells that are short beside what lam^t needs."""
    wanted = np.ceil(CELLS_PER_STEP * length * system.drive.shape[1])
    return np.linspace(0.0, 1.0, int(np.clip(wanted, FEWEST_CELLS, MOST_CELLS)) + 1)


def _circles(lam: np.ndarray, beta: float, along: np.ndarray) -> _Paths:
    """Complex eigenvalues on the rims of their discs."""
    turn = beta * np.exp(2j * np.pi * along)
    shape = np.ones((len(lam), 1, 1))
    return _Paths(lam[:, None, None] + turn, shape * (2j * np.pi * turn))


def _squares(lam: np.ndarray, beta: float, along: np.ndarray) -> _Paths:
    """Complex eigenvalues on the rims of their squares, side by side."""
    corners = beta * np.array([1 + 1j, -1 + 1j, -1 - 1j, 1 - 1j])
    sides = (np.roll(corners, -1) - corners)[:, None]
    rim = corners[:, None] + sides * along
    shape = np.ones((len(lam), 1, 1))
    return _Paths(lam[:, None, None] + rim, shape * (sides * np.ones_like(along)))
