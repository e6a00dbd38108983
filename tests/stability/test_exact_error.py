"""E(beta) of diagonal systems: exact, against brute force and formulas."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from examples.exact_error import Diagonal, direct_error, driven, error_between, radius_direct
from memaudit.errors import ArgumentError

STEPS = 24
IMPULSE, HEAVISIDE = np.eye(1, STEPS)[0], np.ones(STEPS)
WILD = np.random.default_rng(0).uniform(-1, 1, STEPS)
SYSTEMS = {
    "same signs": ([0.9, 0.5], [1.0, 2.0]),
    "opposite signs": ([0.9, 0.5], [1.0, -1.5]),
    "negative eigenvalue": ([-0.8, 0.6], [1.0, 1.0]),
}


def answers(lam: np.ndarray, weights: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Answers (…,T) of systems (…,m), by stepping."""
    state, found = np.zeros_like(lam), []
    for now in u:
        state = lam * state + now
        found.append((weights * state).sum(-1).real)
    return np.stack(found, -1)


def norm_of(d: np.ndarray, norm: str) -> np.ndarray:
    change = np.diff(d, axis=-1, prepend=0.0) if norm == "sobolev" else 0.0
    return (np.abs(d) + np.abs(change)).max(-1)


def brute(lam: np.ndarray, weights: np.ndarray, u: np.ndarray, moves: np.ndarray, norm: str):
    """The largest error over all pairs of moves of two eigenvalues."""
    pairs = lam + np.array(list(itertools.product(moves, moves)))
    return float(norm_of(answers(pairs, weights, u) - answers(lam, weights, u), norm).max())


@pytest.mark.parametrize("beta", [0.01, 0.1, 0.7])
@pytest.mark.parametrize("t", [0, 1, 5, 20])
def test_one_mode_under_an_impulse_has_the_error_of_its_upper_end(beta, t):
    system = driven(np.array([0.8]), np.array([2.0]), np.eye(1, t + 1)[0])
    expected = max(2.0 * ((0.8 + beta) ** s - 0.8**s) for s in range(t + 1))
    assert direct_error(system, beta, norm="sup") == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_one_mode_under_a_step_has_the_error_of_two_geometric_sums():
    system = driven(np.array([0.5]), np.array([1.0]), np.ones(STEPS))
    expected = (1 - 0.7**STEPS) / (1 - 0.7) - (1 - 0.5**STEPS) / (1 - 0.5)
    assert direct_error(system, 0.2, norm="sup") == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("u", [IMPULSE, HEAVISIDE, WILD], ids=["impulse", "heaviside", "wild"])
@pytest.mark.parametrize("beta", [pytest.param(0.02, marks=pytest.mark.slow), 0.3, 1.2])
@pytest.mark.parametrize("norm", [pytest.param("sup", marks=pytest.mark.slow), "sobolev"])
def test_no_pair_of_moves_on_a_grid_does_more_and_the_best_does_as_much(name, u, beta, norm):
    lam, weights = (np.array(values) for values in SYSTEMS[name])
    exact = direct_error(driven(lam, weights, u), beta, norm=norm)
    found = brute(lam, weights, u, np.linspace(-beta, beta, 401), norm)
    # The cubics between cells are good to 1e-6; the grid misses a summit by its square.
    assert found <= exact * (1 + 1e-6)
    assert exact <= found * (1 + 2e-3)


@pytest.mark.parametrize("norm", ["sup", "sobolev"])
@pytest.mark.parametrize("apart", [False, True])
def test_complex_eigenvalues_do_their_worst_on_the_rim(norm, apart):
    lam = np.array([0.7 * np.exp(0.9j), 0.4 * np.exp(2.0j)])
    weights, beta = np.array([1.0 + 0.5j, -0.7 + 0.2j]), 0.15
    exact = direct_error(driven(lam, weights, WILD), beta, norm=norm, apart=apart)
    line = np.linspace(-beta, beta, 17)
    filled = (line[:, None] + 1j * line).ravel()
    turn = np.exp(2j * np.pi * np.arange(48) / 48)
    disc = (np.linspace(0, beta, 6)[:, None] * turn).ravel()
    found = brute(lam, weights, WILD, filled if apart else disc, norm)
    assert found <= exact * (1 + 1e-6)
    assert exact <= found * 1.01


def test_a_monotone_parameterization_moves_between_its_two_ends():
    raw, weights, beta = np.array([-1.0, 0.2]), np.array([1.0, -0.4]), 0.3
    lam = np.exp(-np.exp(raw))
    low, high = np.exp(-np.exp(raw + beta)), np.exp(-np.exp(raw - beta))
    exact = error_between(driven(lam, weights, HEAVISIDE), low, high)
    moves = np.linspace(-beta, beta, 301)
    pairs = np.exp(-np.exp(raw + np.array(list(itertools.product(moves, moves)))))
    d = answers(pairs, weights, HEAVISIDE) - answers(lam, weights, HEAVISIDE)
    found = float(norm_of(d, "sobolev").max())
    assert found <= exact * (1 + 1e-9)
    assert exact <= found * (1 + 1e-3)


def test_modes_may_be_driven_differently():
    lam, readout, gain = np.array([0.9, 0.3]), np.array([1.0, -2.0]), np.array([0.5, 3.0])
    apart = Diagonal(lam, readout, gain[:, None] * WILD)
    together = driven(lam, readout * gain, WILD)
    assert direct_error(apart, 0.05) == pytest.approx(direct_error(together, 0.05), rel=1e-12)


def test_a_target_takes_the_place_of_the_system_itself():
    lam, weights = np.array([0.9]), np.array([1.0])
    system = driven(lam, weights, HEAVISIDE)
    own = answers(lam, weights, HEAVISIDE)
    assert direct_error(system, 0.0, reference=own + 0.25) == pytest.approx(0.5, rel=1e-12)
    assert direct_error(system, 0.1, reference=own) == direct_error(system, 0.1)


def test_the_error_rises_with_beta_and_is_zero_without_a_move():
    system = driven(np.linspace(-0.9, 0.9, 6), np.cos(np.arange(6.0)), WILD)
    errors = [direct_error(system, beta) for beta in (0.0, 0.01, 0.1, 0.5, 1.0, 2.0)]
    assert errors[0] == pytest.approx(0.0, abs=1e-12)
    assert all(a < b for a, b in itertools.pairwise(errors))


def test_what_overflows_is_infinite():
    system = driven(np.array([0.9]), np.array([1.0]), np.ones(2000))
    assert direct_error(system, 3.0) == math.inf


def test_norms_that_do_not_separate_are_refused():
    with pytest.raises(ArgumentError, match="does not separate"):
        direct_error(driven(np.ones(1), np.ones(1), IMPULSE), 0.1, norm="mse")


def test_the_radius_is_the_distance_of_the_nearest_mode():
    assert radius_direct(np.array([0.5, -0.9, 0.2])) == pytest.approx(0.1, rel=1e-12)
    assert radius_direct(0.8 * np.exp(1j * np.arange(3))) == pytest.approx(0.2, rel=1e-12)
    continuous = np.array([-0.3 + 2j, -1.0])
    assert radius_direct(continuous, time="continuous") == pytest.approx(0.3, rel=1e-12)
    assert radius_direct(np.array([1.2])) == 0.0


def test_parts_that_move_apart_reach_the_circle_at_a_corner():
    lam = 0.7 * np.exp(1j * np.array([0.3, 2.5, -1.8]))
    beta = radius_direct(lam, apart=True)
    corners = beta * np.array([1 + 1j, 1 - 1j, -1 + 1j, -1 - 1j])
    assert np.abs(lam[:, None] + corners).max() == pytest.approx(1.0, rel=1e-12)
    assert beta < radius_direct(lam)
