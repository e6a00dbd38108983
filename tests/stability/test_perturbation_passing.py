"""Where a curve passes a bound."""

from __future__ import annotations

import math

import numpy as np
import pytest

from memaudit.stability.radius import bracket, passing

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
