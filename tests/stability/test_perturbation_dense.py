"""The distance of a matrix to the unit circle, over complex and over real moves."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from memaudit.perturbable import Role
from memaudit.stability.radius import real_radius
from memaudit.stability.search import Problem, ascent_errors, random_errors
from tests.stability.moving_systems import seeded

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
