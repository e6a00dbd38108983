"""The verdict on curves that are made, not measured."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memaudit.numerics.decay import FEWEST_LAGS, classify, exponential_fit, power_fit

LAGS = np.arange(512)
EPS = 2.0**-52
quick = settings(max_examples=40, deadline=None)


@quick
@given(st.floats(0.003, 0.5), st.floats(-30, 30))
def test_an_exponential_is_found_at_any_scale(rate: float, scale: float) -> None:
    values = 10**scale * np.exp(-rate * LAGS)
    decay = classify(LAGS, values, EPS * values.max())
    assert decay.kind == "exponential"
    assert decay.rate == pytest.approx(rate, rel=1e-3)
    assert decay.interval is not None
    assert decay.interval[0] <= decay.rate <= decay.interval[1]


@quick
@given(st.floats(0.2, 4.0), st.floats(0.5, 20.0))
def test_a_power_law_is_found_with_any_shift(exponent: float, shift: float) -> None:
    values = (LAGS + shift) ** -exponent
    decay = classify(LAGS, values, EPS * values.max())
    assert decay.kind == "polynomial"
    assert decay.exponent == pytest.approx(exponent, rel=0.01)
    assert decay.window is not None


@quick
@given(st.floats(0.01, 0.3), st.floats(0.2, 1.4), st.floats(0, 6.2))
def test_oscillation_does_not_hide_the_rate(rate: float, angle: float, phase: float) -> None:
    values = np.abs(np.exp(-rate * LAGS) * np.cos(angle * LAGS + phase))
    decay = classify(LAGS, values, EPS)
    assert decay.kind == "exponential"
    assert decay.rate == pytest.approx(rate, rel=0.1)


@quick
@given(st.integers(1, 400), st.integers(0, 2**31))
def test_compact_support_is_finite_with_its_length(length: int, seed: int) -> None:
    values = np.zeros(512)
    values[:length] = np.random.default_rng(seed).uniform(0.1, 1, length)
    decay = classify(LAGS, values, EPS)
    assert decay.kind == "finite"
    assert decay.support == length


@quick
@given(st.integers(1, FEWEST_LAGS - 1), st.floats(0.5, 2.0))
def test_few_lags_above_the_floor_decide_nothing(lags: int, rate: float) -> None:
    values = np.exp(-rate * LAGS)
    floor = float(values[lags]) / 9.99  # lag `lags` is just below ten times the floor
    decay = classify(LAGS, np.maximum(values, floor * 0.5), floor)
    assert decay.kind == "undetermined"


@pytest.mark.parametrize("level", [1e-9, 1.0, 1e9])
def test_white_noise_is_not_called_a_decay(level: float) -> None:
    values = level * np.abs(np.random.default_rng(0).standard_normal(512))
    assert classify(LAGS, values, EPS * level).kind in ("persistent", "undetermined")


def test_a_late_unstable_mode_is_growing() -> None:
    values = 0.9**LAGS + 1e-6 * 1.02**LAGS
    decay = classify(LAGS, values, EPS)
    assert decay.kind == "growing"
    assert decay.rate is not None
    assert decay.rate < 0


def test_a_slow_mode_far_below_leaves_the_leading_verdict_with_its_window() -> None:
    values = np.exp(-0.1 * LAGS) + 1e-10 * np.exp(-0.003 * LAGS)
    decay = classify(LAGS, values, EPS)
    assert decay.kind == "exponential"
    assert decay.window is not None
    assert decay.window[1] < 260
    assert decay.rate == pytest.approx(0.1, rel=0.01)


def test_scaling_changes_no_verdict() -> None:
    rng = np.random.default_rng(5)
    for _ in range(20):
        values = np.abs(np.cumsum(rng.standard_normal(512))) * np.exp(-0.02 * LAGS)
        one, two = (classify(LAGS, c * values, EPS * c) for c in (1.0, 2.0**40))
        assert one.kind == two.kind
        assert one.window == two.window


# A power law fits the whole window, one mode its second half


def test_one_mode_that_explains_the_tail_is_exponential():
    t, slowest = np.arange(1, 1024), 0.0069
    faster = np.geomspace(2 * slowest, 0.1, 24)
    leading = (faster**1.5 * np.exp(-np.outer(t, faster))).sum(1)
    values = leading / leading[0] + 0.003 * np.exp(-slowest * t)
    line, power = (fit(t, np.log(values)) for fit in (exponential_fit, power_fit))
    assert power.misfit < line.misfit / 2  # over the whole window a power law is the better one
    decay = classify(t, values, 1e-16)
    assert decay.kind == "exponential"
    assert decay.rate == pytest.approx(slowest, rel=0.05)


@pytest.mark.parametrize("alpha", [0.5, 1.1, 2.0])
def test_a_power_law_and_many_modes_stay_polynomial(alpha):
    t = np.arange(1, 1024)
    rates = np.geomspace(1e-5, 3.0, 64)
    many = (rates**alpha * np.exp(-np.outer(t, rates))).sum(1)
    assert classify(t, t**-alpha, 1e-16).kind == "polynomial"
    assert classify(t[:512], many[:512], 1e-16).kind == "polynomial"
