"""Lines of more points than a page has room for: what is drawn of them, and that it is told."""

from __future__ import annotations

import re

import numpy as np
import pytest
from memaudit.comparing import compare

from memaudit.memory.result import Decay
from memaudit.writers.diff_html import diff_html
from memaudit.writers.html_page import HtmlPage
from memaudit.writers.page.curves import drawn, shape
from memaudit.writers.page.detail import DETAILS, outline
from memaudit.writers.page.sparkline import sparkline
from tests.handmade import curve, linear_layer, report
from tests.reports.handmade_page import everything, modes

COUNT = 65_536
FINE, COARSE = DETAILS[0], DETAILS[-1]


def long(values: np.ndarray | None = None, **changes):
    heights = np.exp(-np.arange(COUNT) / 9000) if values is None else values
    return curve(values=heights, lags=np.arange(len(heights)), median=heights / 2, **changes)


@pytest.mark.parametrize("detail", DETAILS)
@pytest.mark.parametrize("spike", [3, 700, 5001, 40_123, 65_534])
def test_a_spike_is_drawn_wherever_it_stands(detail, spike):
    values = np.full(COUNT, 1e-9)
    values[[0, spike]] = 1.0, 0.5
    assert [spike, 0.5] in drawn(long(values), detail)


def test_a_dip_is_drawn_as_well():
    values = np.full(COUNT, 0.5)
    values[33_333] = 1e-7
    assert [33_333, 1e-7] in drawn(long(values), COARSE)


@pytest.mark.parametrize("detail", DETAILS)
def test_the_horizon_and_the_ends_of_the_window_are_drawn(detail):
    decay = Decay("exponential", rate=1e-4, window=(1234, 56_789))
    lags = [lag for lag, _ in drawn(long(horizon=43_211, decay=decay), detail)]
    assert {0, 1234, 43_211, 56_789, COUNT - 1} <= set(lags)
    assert lags == sorted(set(lags))


@pytest.mark.parametrize("most", [1, 2, 3, 16, 60, 1024])
def test_no_more_is_drawn_than_there_is_room_for(most):
    noise = np.random.default_rng(0).random(COUNT)
    places = outline(noise, most, marks=range(7, 70, 7))
    assert 1 <= len(places) <= most
    assert sorted(set(places.tolist())) == places.tolist()
    assert outline(np.ones(most), most).tolist() == list(range(most))


def test_the_drawn_line_reaches_as_high_and_low_as_the_curve_everywhere():
    noise = np.exp(np.random.default_rng(0).normal(size=COUNT))
    places = outline(noise, 1024)
    for first in range(0, COUNT, 4096):
        inside = noise[first : first + 4096]
        seen = noise[places[(places >= first) & (places < first + 4096)]]
        assert (seen.max(), seen.min()) == (inside.max(), inside.min())


def test_where_nothing_is_left_the_line_has_a_gap():
    values = np.where(np.arange(COUNT) < 30_000, 0.5, 0.0)
    heights = dict(map(tuple, drawn(long(values), COARSE)))
    assert heights[0] == 0.5
    assert heights[COUNT - 1] is None


def test_a_point_alone_is_a_dot_since_no_line_goes_through_it():
    line, dots = shape("a", [[0, 1.0], [1, 0.5], [2, None], [3, 0.5], [4, None]], "$c1")
    assert line["data"][3] == [3, 0.5]
    assert dots["data"] == [[3, 0.5]]
    assert dots["name"] == line["name"], "they are switched together"
    assert len(shape("a", [[0, 1.0], [1, 0.5]], "$c1")) == 1


def test_few_points_are_marked_since_nothing_was_measured_between_them():
    (few,) = shape("a", [[k, 1.0] for k in range(50)], "$c1")
    (many,) = shape("a", [[k, 1.0] for k in range(512)], "$c1")
    assert (few["showSymbol"], many["showSymbol"]) == (True, False)


def test_a_card_shows_the_spike_too():
    values = np.full(COUNT, 1e-9)
    values[[0, 40_123]] = 1.0, 0.5
    heights = [float(place.split()[1]) for place in re.split("[ML]", _path(values))[1:]]
    assert sorted(heights)[:2] == [1.0, pytest.approx(2.1, abs=0.1)]


def test_every_figure_of_a_part_tells_how_much_is_drawn():
    large = {f"layers.{k}": {"heaviside": long()} for k in range(3)}
    made = everything(
        memory={"heaviside": long(), "impulse": long()},
        layers=large,
        closed_form=(linear_layer("a", lags=np.arange(COUNT), exact=long().values),),
        spectrum=tuple(modes(f"layers.{k}") for k in range(60)),
    )
    told = told_by(HtmlPage().render(made))
    drawn_once = len(drawn(long(), FINE))
    assert told["All queries"] == [f"{2 * drawn_once:,} of {2 * COUNT:,} points drawn"]
    assert told["heaviside"] == [f"{drawn_once:,} of {COUNT:,} points drawn"]
    assert told["Curves of the layers"] == [f"{3 * drawn_once:,} of {3 * COUNT:,} points drawn"]
    assert "points drawn" in told["Exact and measured memory"][0]
    assert told["Complex plane"] == ["1,680 of 2,400 modes drawn"]
    assert told["Time scales"] == ["1,680 of 2,400 modes drawn"]
    assert told["R² by lag"] == [], "that one is whole"


def test_figures_of_a_difference_tell_it_too():
    before = report(long(), layers={"a": {"heaviside": long()}, "b": {"heaviside": curve()}})
    after = report(curve(), layers=before.layers)
    told = told_by(diff_html(compare(before, after), before, after))
    drawn_once = len(drawn(long(), FINE))
    assert told["heaviside"] == [f"{drawn_once + 512:,} of {COUNT + 512:,} points drawn"]
    assert told["heaviside by layer"] == [f"{2 * drawn_once:,} of {2 * COUNT:,} points drawn"]


def told_by(page: str) -> dict[str, list[str]]:
    """What figures say of their points, by title."""
    figures = re.findall(r"<figure.*?</figure>", page, flags=re.DOTALL)
    return {
        re.search("<h3>(.*?)</h3>", drawn)[1]: re.findall(r'class="part">(.*?)<', drawn)
        for drawn in figures
    }


def _path(values: np.ndarray) -> str:
    return re.search(r' d="(.*?)"', sparkline(long(values)))[1]
