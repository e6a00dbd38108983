"""Curves on top of each other: every one is seen beside those above it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from memaudit.reports.page.detail import DETAILS
from memaudit.reports.page.memory import DOTS, overview, panel
from memaudit.reports.page.overlay import memory_figures
from memaudit.reports.page.strokes import BROADEST, MANY, stroke
from tests.handmade import LAGS, curve

FINE = DETAILS[0]


def queries(count: int, **changes) -> dict:
    return {f"q{k}": curve(f"q{k}", **changes) for k in range(count)}


def drawn(figure) -> list[dict]:
    return [s for s in figure.views[0].option["series"] if s["type"] == "line"]


@pytest.mark.parametrize("count", range(2, MANY + 1))
def test_every_curve_is_narrower_than_those_that_it_lies_on(count):
    widths = [stroke(k, count).width for k in range(count)]
    assert widths[0] <= BROADEST
    assert all(below - above >= 1 for below, above in pairwise(widths))


@pytest.mark.parametrize("count", [1, MANY + 1, 64])
def test_one_curve_and_very_many_are_plain_lines(count):
    assert {stroke(k, count).width for k in range(count)} == {2.0}


def test_equal_curves_of_an_overview_lie_in_bands():
    curves = queries(3)
    figure = overview(curves, dict(zip(curves, curves, strict=True)), FINE, logarithmic=False)
    assert [s["lineStyle"]["width"] for s in drawn(figure)] == [6.75, 4.25, 1.75]
    assert [key.sign for key in figure.views[0].keys] == ["broad", "wide", "line"]


def test_a_fit_is_of_no_colour_of_a_curve_and_narrower_than_its_curve():
    supremum, _, fit, *_ = drawn(panel("q", curve(), "$c2", FINE, logarithmic=False))
    assert (supremum["name"], fit["name"]) == ("supremum", "fit")
    assert fit["lineStyle"]["color"] == "$ink"
    assert fit["lineStyle"]["width"] < supremum["lineStyle"]["width"]


def test_an_unchanged_curve_is_seen_before_and_after():
    (figure,) = memory_figures(queries(1), queries(1), FINE)
    before, after = drawn(figure)
    assert before["lineStyle"]["width"] > 2 * after["lineStyle"]["width"]


@pytest.mark.parametrize("horizon", [139, None])
def test_dots_are_told_where_there_are_some(horizon):
    curves = queries(2, horizon=horizon)
    figure = overview(curves, dict(zip(curves, curves, strict=True)), FINE, logarithmic=False)
    assert figure.told == (DOTS if horizon else "")
    (changes, _) = memory_figures(curves, curves, FINE)
    assert (DOTS in changes.told) is (horizon is not None)


def test_a_curve_beside_silent_ones_is_a_plain_line():
    silent = curve("silent", values=np.zeros(len(LAGS)), horizon=0)
    curves = {"q": curve("q"), "silent": silent}
    figure = overview(curves, dict(zip(curves, curves, strict=True)), FINE, logarithmic=False)
    assert [s["lineStyle"]["width"] for s in drawn(figure)] == [2.0, 2.0]
