"""Envelope, horizon, half-life and the floor under a noisy tail."""

from __future__ import annotations

import numpy as np
import pytest

from memaudit.memory.verdict import envelope, half_lag, horizon_lag, noise_floor

LAGS = np.arange(200)
EPS = 2.0**-52


def test_the_envelope_is_the_largest_value_still_to_come() -> None:
    assert envelope(np.array([1.0, 5.0, 2.0, 3.0, 0.5])).tolist() == [5.0, 5.0, 3.0, 3.0, 0.5]


def test_the_horizon_is_the_first_lag_below_for_good() -> None:
    values = 0.9**LAGS
    assert horizon_lag(LAGS, values, 1e-3) == int(np.argmax(0.9**LAGS < 1e-3))


def test_a_window_that_ends_in_a_dip_has_no_horizon() -> None:
    longer = np.abs(np.cos(0.05 * np.arange(97)))  # two dips before, and the end inside a third
    assert horizon_lag(np.arange(97), longer, 0.15) is None


def test_half_a_life_is_interpolated() -> None:
    values = np.exp(-0.1 * LAGS)
    assert half_lag(LAGS, values) == pytest.approx(np.log(2) / 0.1, rel=1e-9)


def test_half_a_life_counts_from_the_peak() -> None:
    values = np.concatenate([np.zeros(10), 0.5 ** np.arange(50)])
    assert half_lag(np.arange(60), values) == pytest.approx(1.0)


def test_a_flat_curve_has_no_half_life() -> None:
    assert half_lag(LAGS, np.ones(200)) is None


def test_a_rough_tail_near_the_floor_raises_it() -> None:
    rng = np.random.default_rng(0)
    noise = 1e-13 * np.abs(rng.standard_normal(200))
    values = np.maximum(np.exp(-0.5 * LAGS), noise)
    assert noise_floor(values, 1e-15, EPS) > 5e-14


@pytest.mark.parametrize("rate", [0.0, 0.01, 0.15])
def test_a_smooth_tail_is_no_noise(rate: float) -> None:
    values = 1e-13 * np.exp(-rate * LAGS)
    assert noise_floor(values, 1e-15, EPS) == 1e-15


def test_a_large_tail_is_no_noise() -> None:
    rng = np.random.default_rng(0)
    assert noise_floor(np.abs(rng.standard_normal(200)), 1e-15, EPS) == 1e-15


def test_a_tail_that_came_to_rest_a_few_roundings_above_zero_is_the_floor() -> None:
    frozen = np.maximum(0.3 * 0.5**LAGS, 33 * EPS * 0.3)
    assert noise_floor(frozen, 1e-18, EPS, louder=0 * frozen) == frozen[-1]
    assert noise_floor(frozen, 1e-18, EPS, louder=frozen / 4) == frozen[-1]


def test_a_tail_that_louder_probes_show_as_well_is_a_memory_however_small() -> None:
    frozen = np.maximum(0.3 * 0.5**LAGS, 33 * EPS * 0.3)
    assert noise_floor(frozen, 1e-18, EPS, louder=frozen) == 1e-18
    assert noise_floor(frozen, 1e-18, EPS) == 1e-18


@pytest.mark.parametrize("level", [1e-3, 1e-9, 1e-12])
def test_a_constant_memory_above_that_is_a_memory(level: float) -> None:
    constant = np.maximum(0.3 * 0.5**LAGS, level)
    assert noise_floor(constant, 1e-18, EPS, louder=0 * constant) == 1e-18


def test_in_half_precision_a_constant_tail_is_a_memory() -> None:
    constant = np.maximum(0.3 * 0.5**LAGS, 0.01)
    assert noise_floor(constant, 1e-5, 2.0**-8, louder=0 * constant) == 1e-5
