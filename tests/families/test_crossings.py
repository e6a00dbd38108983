"""Crossings of straight lines in log-log are exact, and so is what follows from them."""

from __future__ import annotations

import numpy as np
import pytest

from memaudit.families.crossings import LEAD, Span, crossing, trend

BETAS = 1e-3 * 2.0 ** np.arange(11)


def flat(level, slope):
    """E = level for small beta, slope beta for larger ones."""
    return np.maximum(level, slope * BETAS)


def test_a_line_crosses_a_constant_where_it_leads_by_the_factor():
    found = crossing(BETAS, np.full(11, 0.2), 1.0 * BETAS, starts=(0.2, 0.0), cap=10.0)
    assert found == pytest.approx(LEAD * 0.2, rel=1e-12)


def test_curves_that_merge_do_not_cross():
    smaller, larger = flat(1e-2, 1.0), flat(1e-3, 1.4)
    assert crossing(BETAS, smaller, larger, starts=(1e-2, 1e-3), cap=10.0) == np.inf


def test_a_larger_model_that_is_no_better_unmoved_is_worse_from_zero_on():
    assert crossing(BETAS, flat(0.1, 1.0), flat(0.1, 9.0), starts=(0.1, 0.1), cap=10.0) == 0.0


def test_what_has_happened_at_the_first_beta_is_reported_as_that_beta():
    found = crossing(BETAS, flat(1e-4, 1.0), flat(1e-5, 9.0), starts=(1e-4, 1e-5), cap=10.0)
    assert found == BETAS[0]


def test_nothing_is_compared_where_both_models_are_lost():
    larger = np.where(BETAS < 0.5, 1e-3, 1e9)
    assert crossing(BETAS, flat(0.1, 1.0), larger, starts=(0.1, 1e-3), cap=0.2) == np.inf
    assert crossing(BETAS, flat(0.1, 1.0), larger, starts=(0.1, 1e-3), cap=10.0) < 0.6


def test_an_infinite_error_is_a_crossing_between_its_neighbours():
    larger = np.where(BETAS < 0.1, 1e-3, np.inf)
    found = crossing(BETAS, np.full(11, 0.1), larger, starts=(0.1, 1e-3), cap=1.0)
    assert 0.064 <= found <= 0.128


def below(beta):
    """A crossing that the first beta had passed already."""
    return Span(beta, 0.0, beta, below=True)


def span(beta, low=None, high=None):
    return Span(beta, beta if low is None else low, beta if high is None else high)


@pytest.mark.parametrize(
    ("spans", "verdict", "word"),
    [
        ([], "undetermined", "add members"),
        ([span(0.0), span(0.0)], "undetermined", "no member is better"),
        ([span(np.inf), span(np.inf)], "stable", "no crossings"),
        ([span(0.02), span(0.015), span(0.03)], "stable", "stay put"),
        ([span(0.02), span(np.inf)], "stable", "none of larger models"),
        ([span(0.02), span(0.009), span(0.004)], "unstable", "shift left"),
        ([span(0.02), span(np.inf), span(0.004)], "unstable", "shift left"),
        ([span(0.02, 0.006, 0.03), span(0.004)], "undetermined", "noise"),
        ([span(0.02), span(0.004, 0.004, np.inf)], "undetermined", "noise"),
        ([span(np.inf), span(0.004)], "undetermined", "only the largest"),
        ([span(0.004)], "undetermined", "only the largest"),
        ([span(0.004), span(0.02)], "stable", "stay put"),
        ([below(0.001), below(0.001)], "undetermined", "smaller betas"),
        ([span(0.0015), below(0.001)], "undetermined", "smaller betas"),
        ([span(0.02), below(0.001)], "unstable", "beta = 0.02, < 0.001"),
        ([below(0.001), span(0.02)], "stable", "beta = < 0.001, 0.02"),
    ],
)
def test_the_verdict_follows_from_the_order_of_the_crossings(spans, verdict, word):
    found, reason = trend(spans)
    assert (found, word in reason) == (verdict, True)
