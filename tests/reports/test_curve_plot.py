"""Plots of memory curves: known pictures, and every awkward curve."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memaudit.reports.curve_plot import floor_is_drawn, plot
from tests.handmade import curve, of_kind

STRAIGHT = """\
 1e+00|*
 1e-01| *
 1e-02|  *
 1e-03|   *
 1e-04|    *
      +-----
       1   5"""

FLOORED = """\
 1e+00|*:
 1e-01| *
 1e-02| :*
 1e-03| : *
 1e-04|....*****
      +-^-------
       0       8"""


def drawn(picture, *, width):
    lines = plot(picture, width=width, height=5, ascii_only=True)
    return "\n".join(line.rstrip() for line in lines)


def test_an_exponential_is_a_straight_line():
    powers = 10.0 ** -np.arange(5)
    picture = curve(values=powers, floor=0.0, horizon=None)
    assert drawn(picture, width=12) == STRAIGHT


def test_what_lies_below_the_floor_stands_on_its_dotted_line():
    values = np.array([1.0, 0.1, 0.01, 1e-3, 1e-4, 0.0, 0.0, 0.0, 0.0])
    picture = curve(values=values, lags=np.arange(9), floor=1e-4, horizon=1)
    assert drawn(picture, width=16) == FLOORED
    assert floor_is_drawn(picture)


def test_the_horizon_is_marked_and_named():
    lines = plot(curve(), width=60, height=8)
    assert lines[-2].count("┴") == 1
    # lag 139 of 1..512 stands at 27 % of the 53 columns
    assert lines[-2].index("┴") - 7 == pytest.approx(0.27 * 53, abs=1)
    assert "horizon 139" in lines[-1]
    assert lines[-1].split()[0] == "1"
    assert lines[-1].split()[-1] == "512"


def test_a_floor_far_below_the_curve_does_not_squeeze_it():
    high = curve(values=np.linspace(1.0, 0.5, 512), floor=1e-16, horizon=None)
    assert not floor_is_drawn(high)
    assert "1e-01" in plot(high)[7]


def test_lags_are_placed_by_their_value_not_by_their_index():
    spread = np.array([1, 2, 4, 8, 16, 1024])
    picture = curve(values=np.full(6, 0.5), lags=spread, floor=0.0, horizon=None)
    spikes = curve(values=np.array([1, 1, 1, 1, 1, 1e-3]), lags=spread, floor=0.0, horizon=None)
    assert plot(picture, ascii_only=True)[-1].split() == ["1", "1024"]
    # the fall from lag 16 to lag 1024 takes the whole width
    assert plot(spikes, width=60, height=8, ascii_only=True)[3].index("*") > 20


def test_a_single_point_has_a_plot():
    lines = plot(curve(values=np.array([0.5]), horizon=None), ascii_only=True)
    assert sum(line.count("*") for line in lines) == 1
    assert lines[-1].split() == ["1"]


def test_curves_without_a_point_say_so():
    assert plot(curve(values=np.array([])))[0].strip() == "(no lag was measured)"
    assert plot(of_kind("memoryless", values=np.zeros(512)))[0].strip() == "(zero at every lag)"


def test_ascii_plots_are_ascii_and_others_are_braille():
    assert all(line.isascii() for line in plot(curve(), ascii_only=True))
    assert any("⠀" < letter <= "⣿" for line in plot(curve()) for letter in line)


@given(
    values=st.lists(
        st.one_of(st.just(0.0), st.just(np.nan), st.floats(min_value=0)),
        max_size=40,
    ),
    floor=st.floats(min_value=0, max_value=1e300),
    horizon=st.one_of(st.none(), st.integers(0, 600)),
    ascii_only=st.booleans(),
)
def test_every_plot_has_the_size_that_was_asked_for(values, floor, horizon, ascii_only):
    picture = curve(values=np.array(values), floor=floor, horizon=horizon)
    lines = plot(picture, width=50, height=6, ascii_only=ascii_only)
    assert {len(line) for line in lines} == {50}
    assert len(lines) in (1, 8)
