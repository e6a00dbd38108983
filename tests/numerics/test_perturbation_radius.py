"""Bisection for a radius: found, infinite, zero, and how often it asks."""

from __future__ import annotations

import math

import pytest

from memaudit.numerics.perturbation.radius import bisect


@pytest.mark.parametrize("radius", [3.7e-9, 1e-4, 9.99e-4, 1e-3, 0.0123, 0.9, 1.0])
def test_the_radius_is_found_from_above_and_below(radius):
    found = bisect(lambda beta: beta <= radius, low=1e-3, high=2.0, rtol=1e-3)
    assert radius / 1.001 <= found <= radius


def test_what_was_returned_was_seen_to_hold():
    seen = {}

    def holds(beta: float) -> bool:
        seen[beta] = beta < 0.3
        return seen[beta]

    assert seen[bisect(holds, low=1e-3, high=1.0, rtol=1e-3)]


def test_a_criterion_that_holds_at_the_end_has_no_radius_within_reach():
    assert bisect(lambda beta: beta <= 1.0, low=1e-3, high=1.0, rtol=1e-3) == math.inf
    assert bisect(lambda beta: True, low=1.0, high=1.0, rtol=1e-3) == math.inf


def test_a_criterion_that_never_holds_has_radius_zero():
    assert bisect(lambda beta: False, low=1e-3, high=1.0, rtol=1e-3) == 0.0


def test_it_never_asks_beyond_the_end():
    asked = []
    bisect(lambda beta: asked.append(beta) or beta < 0.65, low=1e-3, high=0.7, rtol=1e-3)
    assert max(asked) == 0.7


def test_it_asks_as_often_as_doublings_and_halvings_need():
    asked = []
    bisect(lambda beta: asked.append(beta) or beta < 0.3, low=1e-3, high=4.0, rtol=1e-3)
    # Nine doublings past 0.3, then a factor of two is cut ten times to a thousandth.
    assert len(asked) == 1 + 9 + 10
