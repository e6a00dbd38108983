"""Radii: where a criterion or a bound ends, and the closed form of a matrix."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from memaudit.interfaces import Role
from memaudit.stability.radius import bracket, narrowed, passing, real_radius
from memaudit.stability.search import Problem, ascent_errors, random_errors
from tests.stability.moving_systems import seeded


@pytest.mark.parametrize("edge", [1e-9, 1e-3, 0.0123, 0.9, 15.9])
@pytest.mark.parametrize("rtol", [1e-1, 1e-3, 1e-6])
def test_the_edge_is_found_from_below(edge: float, rtol: float) -> None:
    found = narrowed(lambda betas: betas > edge, low=1e-3, high=16.0, rtol=rtol)
    assert edge / (1 + rtol) <= found <= edge


def test_what_holds_up_to_the_end_is_infinite() -> None:
    assert narrowed(lambda betas: betas > 17.0, low=1e-3, high=16.0, rtol=1e-3) == math.inf


def test_what_fails_everywhere_is_zero() -> None:
    found = narrowed(lambda betas: np.ones(len(betas), bool), low=1e-3, high=16.0, rtol=1e-3)
    assert found == 0.0


def test_of_two_edges_the_first_counts() -> None:
    def fails(betas: np.ndarray) -> np.ndarray:
        return ((betas > 0.1) & (betas < 3.0)) | (betas > 10.0)

    assert narrowed(fails, low=1e-3, high=16.0, rtol=1e-3) == pytest.approx(0.1, rel=2e-3)


BETAS = np.geomspace(1e-3, 1.0, 13)


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0, 7.0])
@pytest.mark.parametrize("edge", [0.0023, 0.05, 0.99])
def test_a_power_of_beta_passes_exactly_where_it_does(power: float, edge: float) -> None:
    assert passing(BETAS, 3.0 * BETAS**power, 3.0 * edge**power) == pytest.approx(edge, rel=1e-12)


def test_before_the_first_beta_the_error_is_straight() -> None:
    assert passing(BETAS, 2.0 + 5.0 * BETAS, 2.002, start=2.0) == pytest.approx(4e-4)


def test_a_curve_below_the_bound_never_passes() -> None:
    assert passing(BETAS, BETAS, 2.0) == math.inf
    assert bracket(BETAS, BETAS, 2.0) is None


def test_an_infinite_error_passes_behind_the_last_finite_one() -> None:
    errors = np.where(BETAS > 0.1, np.inf, BETAS)
    assert passing(BETAS, errors, 50.0) == BETAS[BETAS <= 0.1][-1]


def test_an_error_of_zero_is_below_every_bound() -> None:
    errors = np.where(BETAS > 0.1, 1.0, 0.0)
    assert passing(BETAS, errors, 0.5) == BETAS[BETAS <= 0.1][-1]


ROTATION = 0.7 * np.array([[0.6, -0.8], [0.8, 0.6]])
CASES = {
    "lopsided pair": np.array([[0.2, 2.0], [-0.2, 0.3]]),
    "jordan": np.array([[0.5, 1.0], [0.0, 0.5]]),
    "negative": np.array([[-0.6, 0.9], [0.0, 0.2]]),
    "three": np.array([[0.3, 1.1, -0.4], [-0.5, 0.2, 0.7], [0.1, -0.3, -0.4]]),
    "pair and one": np.array([[0.5, 0.9, 0.0], [-0.4, 0.5, 0.3], [0.0, 0.0, 0.6]]),
}


@pytest.mark.parametrize(
    "matrix",
    [np.diag([0.9, -0.95, 0.1]), ROTATION, np.array([[0.4]]), np.array([[0.3, 0.5], [0.5, -0.2]])],
    ids=["diagonal", "rotation", "scalar", "symmetric"],
)
def test_a_normal_matrix_is_as_far_away_as_its_eigenvalues(matrix):
    expected = 1.0 - np.abs(np.linalg.eigvals(matrix)).max()
    assert real_radius(matrix) == pytest.approx(expected, abs=1e-6)


def test_a_mode_on_the_circle_or_beyond_has_no_distance():
    assert real_radius(np.diag([1.0, 0.2])) == 0.0
    assert real_radius(np.diag([0.5, -1.3])) == 0.0


@pytest.mark.parametrize("name", CASES)
def test_real_moves_need_at_least_as_much_as_complex_ones(name):
    """Complex ones need the smallest singular value of e^it - W, here on a fine grid."""
    angles = np.linspace(0, np.pi, 40_001)
    matrices = np.exp(1j * angles)[:, None, None] * np.eye(len(CASES[name])) - CASES[name]
    grid = np.linalg.svd(matrices, compute_uv=False)[:, -1].min()
    # The smallest singular value changes by no more than the angle: the grid is good to 4e-5.
    assert real_radius(CASES[name]) >= grid - 4e-5


def test_a_scalar_moves_along_the_real_line_alone():
    assert real_radius(np.array([[-0.25]])) == pytest.approx(0.75, abs=1e-9)


def growth(matrix: np.ndarray) -> Problem:
    """The largest modulus of an eigenvalue, as what is to be made large."""
    return Problem(
        {"w": torch.from_numpy(matrix)},
        {"w": Role("recurrent", "matrix")},
        "spectral",
        lambda moved: torch.linalg.eigvals(moved["w"]).abs().amax(1),
        batch=4096,
    )


@pytest.mark.parametrize("name", CASES)
def test_a_real_move_of_that_size_reaches_the_circle_and_no_smaller_one_does(name):
    radius = real_radius(CASES[name])
    sizes = radius * np.array([0.9, 0.999, 1.001])
    reached = ascent_errors(growth(CASES[name]), sizes, 8, 60, seeded(0))
    assert reached[2] >= 1.0
    assert reached[1] < 1.0
    assert random_errors(growth(CASES[name]), sizes[1:2], 3000, seeded(1)).max() < 1.0
