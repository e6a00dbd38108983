"""Eigenvalues before and after a change, in whatever order they come."""

from __future__ import annotations

import numpy as np
import pytest

from memaudit.precision.rounding import MOST_PAIRED, paired, reached, shift


def turned(count: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.uniform(0.1, 0.95, count) * np.exp(2j * np.pi * rng.uniform(size=count))


def test_modes_in_another_order_are_the_same_modes():
    before = turned(40)
    after = before[np.random.default_rng(1).permutation(40)]
    assert np.array_equal(paired(before, after), before)
    assert shift(before, after) == 0.0


def test_a_diagonal_layer_keeps_its_order_where_neighbours_mislead():
    before = np.array([0.5, 0.6, 0.7])
    after = np.array([0.59, 0.69, 0.79])
    assert shift(before, after) == pytest.approx(0.09)


def test_many_modes_are_compared_in_their_order():
    before = np.linspace(0.1, 0.9, MOST_PAIRED + 1)
    assert shift(before, before + 0.05) == pytest.approx(0.05)


def test_on_the_circle_counts_and_who_was_there_before_does_not():
    before = np.array([0.999, -0.5, 1.0, 1.2, 0.9j])
    after = np.array([1.0, -0.5, 1.1, 1.2, 1.01j])
    assert reached(before, after) == 2
    assert reached(after, before) == 0
    assert reached(before, before) == 0


def test_a_modulus_that_rounds_to_just_below_one_is_on_the_circle():
    angles = np.linspace(0.01, 3.0, 200)
    moduli = np.abs(np.exp(1j * angles))
    assert (moduli < 1).any()
    assert reached(0.99 * np.exp(1j * angles), np.exp(1j * angles)) == 200


def test_modes_that_come_or_go_are_counted_and_have_no_shift():
    assert shift(np.array([0.5]), np.array([0.5, 0.6])) is None
    assert reached(np.array([0.5]), np.array([0.5, 1.0])) == 1
    assert reached(np.array([0.5, 1.0]), np.array([1.0])) == 0
