"""The ends of sets that only say what they hold, to the last bit."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memaudit.numerics.ends import ends

SETS = {
    "[-2, 0)": lambda x: -2.0 <= x < 0.0,
    "(-inf, 0)": lambda x: -math.inf < x < 0.0,
    "(-inf, 0]": lambda x: -math.inf < x <= 0.0,
    "(-inf, inf)": math.isfinite,
    "(0, 1)": lambda x: 0.0 < x < 1.0,
    "(-1, 1)": lambda x: -1.0 < x < 1.0,
    "(-inf, -0.0001]": lambda x: -math.inf < x <= -1e-4,
    "[1, 1]": lambda x: x == 1.0,
}


@pytest.mark.parametrize("told", SETS)
def test_an_interval_is_told_with_its_brackets(told):
    assert str(ends(SETS[told])) == told


def test_a_set_without_a_number_has_no_ends():
    assert ends(lambda x: False) is None


@given(low=st.integers(-900, -1), high=st.integers(1, 900))
def test_round_ends_are_found_exactly(low, high):
    found = ends(lambda x: low / 8 <= x <= high / 8)
    assert found is not None
    assert (found.low, found.high, found.closed) == (low / 8, high / 8, (True, True))


def test_of_two_neighbours_that_are_not_round_the_inner_one_is_told():
    low = -1.0 / 0.5000001
    found = ends(lambda x: low <= x < 0.0)
    assert found is not None
    assert math.isclose(found.low, low, rel_tol=1e-15)
