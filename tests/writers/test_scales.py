"""Where points lie, and what is drawn of more points than there is room for."""

from __future__ import annotations

import numpy as np
import pytest

from memaudit.sections import Axis, Figure, Line, Mark, Points
from memaudit.writers.scales import limits, outline, spread, ticks

COUNT = 65_536
MOST = (16, 60, 160, 400, 1024)


def figure(y, *, log: bool = True, marks=(), **options) -> Figure:
    x = np.arange(1, len(y) + 1)
    return Figure(
        "", Axis("x"), Axis("y", log=log), (Line("a", x, np.asarray(y)),), marks, **options
    )


@pytest.mark.parametrize("most", MOST)
@pytest.mark.parametrize("spike", [3, 700, 5001, 40_123, 65_534])
def test_a_spike_and_a_dip_are_kept_wherever_they_stand(most, spike):
    flat = np.full(COUNT, 0.5)
    flat[spike] = 1.0
    assert spike in outline(flat, most)
    flat[spike] = 1e-9
    assert spike in outline(flat, most)


@pytest.mark.parametrize("most", [1, 2, 3, *MOST])
def test_no_more_is_kept_than_there_is_room_for(most):
    noise = np.random.default_rng(0).random(COUNT)
    places = outline(noise, most, kept=range(7, 70, 7))
    assert 1 <= len(places) <= most
    assert sorted(set(places.tolist())) == places.tolist()
    assert outline(np.ones(most), most).tolist() == list(range(most))
    assert len(spread(COUNT, most)) <= most


@pytest.mark.parametrize("most", MOST)
def test_the_ends_and_marked_places_are_kept(most):
    noise = np.random.default_rng(0).random(COUNT)
    assert {0, 1234, 43_211, COUNT - 1} <= set(outline(noise, most, kept=(1234, 43_211)).tolist())


def test_what_is_kept_reaches_as_high_and_low_as_the_curve_everywhere():
    noise = np.exp(np.random.default_rng(0).normal(size=COUNT))
    places = outline(noise, 1024)
    for first in range(0, COUNT, 4096):
        inside = noise[first : first + 4096]
        seen = noise[places[(places >= first) & (places < first + 4096)]]
        assert (seen.max(), seen.min()) == (inside.max(), inside.min())


def test_where_nothing_is_left_a_gap_is_kept():
    values = np.where(np.arange(COUNT) < 30_000, 0.5, np.nan)
    assert np.isnan(values[outline(values, 16)]).any()


def test_a_logarithmic_axis_has_whole_powers_of_ten_around_the_data():
    assert limits(figure([0.5, 2e-3]))[1] == (1e-3, 1.0)
    assert limits(figure([1.0, 1.0]))[1] == (1.0, 10.0)


def test_noise_far_below_a_curve_does_not_squeeze_it():
    assert limits(figure([1.0, 1e-200]))[1] == pytest.approx((1e-18, 1.0))
    deep = Line("b", np.arange(1, 3), np.array([1e-30, 1e-31]))
    both = Figure("", Axis("x"), Axis("y", log=True), (figure([1.0, 0.1]).series[0], deep))
    assert limits(both)[1] == pytest.approx((1e-31, 1.0)), "a whole curve down there is seen"


def test_a_mark_nearby_is_inside_and_a_far_one_is_left_out():
    assert limits(figure([1.0, 0.1], marks=(Mark("floor", y=5e-3),)))[1] == (1e-3, 1.0)
    assert limits(figure([1.0, 0.1], marks=(Mark("floor", y=1e-15),)))[1] == (0.1, 1.0)


def test_a_straight_axis_ends_at_round_numbers():
    assert limits(figure([0.13, 0.87], log=False))[1] == pytest.approx((0.0, 1.0))
    assert limits(figure([5.0, 5.0], log=False))[1] == (0.0, 5.0)


def test_a_square_is_as_wide_as_it_is_high_and_a_runaway_point_does_not_count():
    points = Points("a", np.array([0.5, 1e9]), np.array([0.1, 0.0]))
    plane = Figure("", Axis("Re"), Axis("Im"), (points,), (Mark("edge", radius=1.0),), square=True)
    across, upward = limits(plane)
    assert across == upward
    assert 1.0 < across[1] < 1.5


@pytest.mark.parametrize("ends", [(5e-324, 1e-300), (1e-3, 1.7e308), (-1e300, 1e300), (0, 1)])
def test_ticks_lie_between_the_ends_and_are_few(ends):
    found = ticks(*ends, log=ends[0] > 0, most=7)
    assert 1 <= len(found) <= 9
    assert found == sorted(found)
