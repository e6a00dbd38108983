"""Envelope, horizon, half-life and the floor under a noisy tail."""

from __future__ import annotations

import numpy as np
import pytest

from memaudit.numerics.decay import horizon_lag, noise_floor

LAGS = np.arange(200)
EPS = 2.0**-52


def test_a_window_that_ends_in_a_dip_has_no_horizon() -> None:
    longer = np.abs(np.cos(0.05 * np.arange(97)))  # two dips before, and the end inside a third
    assert horizon_lag(np.arange(97), longer, 0.15) is None


def test_a_rough_tail_near_the_floor_raises_it() -> None:
    rng = np.random.default_rng(0)
    noise = 1e-13 * np.abs(rng.standard_normal(200))
    values = np.maximum(np.exp(-0.5 * LAGS), noise)
    assert noise_floor(values, 1e-15, EPS) > 5e-14


@pytest.mark.parametrize("rate", [0.0, 0.01, 0.15])
def test_a_smooth_tail_is_no_noise(rate: float) -> None:
    values = 1e-13 * np.exp(-rate * LAGS)
    assert noise_floor(values, 1e-15, EPS) == 1e-15


def test_a_tail_that_came_to_rest_a_few_roundings_above_zero_is_the_floor() -> None:
    frozen = np.maximum(0.3 * 0.5**LAGS, 33 * EPS * 0.3)
    assert noise_floor(frozen, 1e-18, EPS, louder=0 * frozen) == frozen[-1]
    assert noise_floor(frozen, 1e-18, EPS, louder=frozen / 4) == frozen[-1]


def test_a_tail_that_louder_probes_show_as_well_is_a_memory_however_small() -> None:
    frozen = np.maximum(0.3 * 0.5**LAGS, 33 * EPS * 0.3)
    assert noise_floor(frozen, 1e-18, EPS, louder=frozen) == 1e-18
    assert noise_floor(frozen, 1e-18, EPS) == 1e-18
