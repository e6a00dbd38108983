"""How far a real matrix is from one with an eigenvalue on the unit circle, in the spectral norm.

The complex radius is the distance over complex moves, a lower bound of what real moves need. The
real radius is the formula of Qiu et al. (Automatica 1995) for the disc. Of a normal matrix both
are min(1 - |lam|).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

#: Angles of the first look at the half circle; the angles of the eigenvalues are added.
ANGLES = 128
#: Dips that are looked into, points in each, and how often: the width falls by 4 each time.
DIPS, POINTS, ROUNDS = 6, 9, 10
#: Smallest gamma of the real formula, and steps of its golden section: to 1e-7 of log gamma.
SMALLEST_GAMMA, GOLDEN_STEPS = 1e-6, 40


def complex_radius(matrix: np.ndarray) -> float:
    """The smallest complex move that puts an eigenvalue on the unit circle; 0 beyond it.

    min over theta of sigma_min(e^{i theta} I - W)
    """
    w = np.asarray(matrix, float)
    if _beyond(w):
        return 0.0
    return _lowest(lambda angles: _singular(_resolvent(w, angles))[:, -1], _angles_of(w))


def real_radius(matrix: np.ndarray) -> float:
    """The smallest real move that puts an eigenvalue on the unit circle; 0 beyond it.

    1 / sup over theta of mu_R((e^{i theta} I - W)^-1), where mu_R(M) is the infimum over gamma in
    (0,1] of the second singular value of [[Re M, -gamma Im M], [Im M / gamma, Re M]].

    It costs some 20 000 decompositions of twice the size: it is meant for small matrices.
    """
    w = np.asarray(matrix, float)
    if _beyond(w):
        return 0.0
    # A real move reaches 1 and -1 by a real vector: there mu_R is the largest singular value,
    # and jumps. The open half circle between is another matter.
    ends = _singular(_resolvent(w, np.array([0.0, np.pi])))[:, -1].min()
    if len(w) == 1:
        return float(ends)

    def needed(angles: np.ndarray) -> np.ndarray:
        return 1.0 / _mu(np.linalg.inv(_resolvent(w, angles)))

    return float(min(ends, _lowest(needed, _angles_of(w)[1:-1])))


def _beyond(w: np.ndarray) -> bool:
    return bool(np.abs(np.linalg.eigvals(w)).max() >= 1.0)


def _resolvent(w: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """The matrices e^{i theta} I - W, one for every angle."""
    return np.exp(1j * angles)[:, None, None] * np.eye(len(w)) - w


def _singular(matrices: np.ndarray) -> np.ndarray:
    return np.linalg.svd(matrices, compute_uv=False)


def _angles_of(w: np.ndarray) -> np.ndarray:
    """The half circle from 0 to pi; the other half mirrors it."""
    own = np.abs(np.angle(np.linalg.eigvals(w)))
    return np.unique(np.concatenate([np.linspace(0.0, np.pi, ANGLES + 1), own]))


def _lowest(function: Callable[[np.ndarray], np.ndarray], grid: np.ndarray) -> float:
    """The minimum over the grid, with its deepest dips looked into ever closer."""
    values = function(grid)
    padded = np.pad(values, 1, constant_values=np.inf)
    dips = np.flatnonzero((values <= padded[:-2]) & (values <= padded[2:]))
    best = float(values.min())
    for dip in dips[np.argsort(values[dips])][:DIPS]:
        low, high = grid[max(dip - 1, 0)], grid[min(dip + 1, len(grid) - 1)]
        for _ in range(ROUNDS):
            points = np.linspace(low, high, POINTS)
            found = function(points)
            at = int(found.argmin())
            best = min(best, float(found[at]))
            low, high = points[max(at - 1, 0)], points[min(at + 1, POINTS - 1)]
    return best


def _mu(m: np.ndarray) -> np.ndarray:
    """mu_R of matrices (K,n,n), by golden section: the second singular value has one valley."""
    golden = (np.sqrt(5.0) - 1.0) / 2.0
    low, high = np.full(len(m), np.log(SMALLEST_GAMMA)), np.zeros(len(m))
    left, right = high - golden * (high - low), low + golden * (high - low)
    at_left, at_right = _second(m, left), _second(m, right)
    best = np.minimum(_second(m, low), _second(m, high))
    for _ in range(GOLDEN_STEPS):
        best = np.minimum(best, np.minimum(at_left, at_right))
        down = at_left < at_right
        low, high = np.where(down, low, left), np.where(down, right, high)
        fresh = np.where(down, high - golden * (high - low), low + golden * (high - low))
        at_fresh = _second(m, fresh)
        left, right = np.where(down, fresh, right), np.where(down, left, fresh)
        at_left, at_right = np.where(down, at_fresh, at_right), np.where(down, at_left, at_fresh)
    return best


def _second(m: np.ndarray, log_gamma: np.ndarray) -> np.ndarray:
    gamma = np.exp(log_gamma)[:, None, None]
    return _singular(
        np.block([[np.real(m), -gamma * np.imag(m)], [np.imag(m) / gamma, np.real(m)]])
    )[:, 1]
