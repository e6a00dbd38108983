"""When two facts of a report count as the same."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from memaudit.comparing.difference import same


@settings(deadline=None)
@given(value=st.floats(1e-6, 1e6), factor=st.floats(0.5, 2.0))
def test_numbers_are_the_same_when_four_digits_do_not_tell_them_apart(value, factor):
    other = value * factor
    assert same(value, other) == same(other, value)
    assert same(value, value * (1 + 1e-6))
    assert same(value, other) or f"{value:.6g}" != f"{other:.6g}"


def test_counts_words_and_infinities_are_compared_exactly():
    assert not same(100000, 100001)
    assert same(math.inf, math.inf)
    assert not same(1e300, math.inf)
    assert not same(None, 0.0)
    assert same((0.5, 1.0), [0.5, 1.0])
    assert not same((0.5,), (0.5, 1.0))
