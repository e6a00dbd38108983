"""All curves in one picture: letters, scales, floors, and the axis below."""

from __future__ import annotations

import numpy as np
import pytest

from memaudit.reports.curve_plot import Scale
from memaudit.reports.lag_axis import lag_axis, ticks
from memaudit.reports.overlay import Line, floor, heard, letters, overlay
from tests.handmade import curve, of_kind, power_law


def drawn(*curves, **size) -> list[str]:
    memory = {item.query: item for item in curves}
    made = overlay(memory, **{"width": 47, "height": 6, "ascii_only": True, **size})
    return [line.plain for line in made]


def scale(first: int, last: int, *, powers: bool = False) -> Scale:
    return Scale(first, last, -3, 0, columns=40, rows=6, powers=powers)


def test_the_picture_is_this_text():
    slow = curve("impulse", values=np.exp(-0.02 * np.arange(1, 513)), horizon=346)
    assert drawn(curve(), slow) == [
        " 1e+00|hihihiiiiii                             ",
        " 1e-03|    hhhhhhhihiiiiiiiiiiiiiiiiiiii       ",
        " 1e-06|             hhhhhhhhh          iiiiiiii",
        "      |                     hhhhhhhhh          ",
        " 1e-09|                             hhhhhhhhhh ",
        " 1e-12|                                      hh",
        "      ++-------+--h---+-------+--i---+---------",
        "       1      100    200     300    400 512 lag",
    ]


def test_a_name_gets_its_first_letter_that_is_free():
    assert letters(["reversed", "repeat", "rr", "é!"]) == {
        **{"reversed": "r", "repeat": "e", "rr": "1", "é!": "2"}
    }


def test_more_names_than_letters_are_survived():
    marks = letters([str(k) for k in range(60)])
    assert list(marks.values())[-1] == "*"


def test_every_line_has_its_letter_in_braille():
    text = "\n".join(drawn(curve(), curve("impulse"), curve("reversed"), ascii_only=False))
    assert all(letter in text.rpartition("└")[0] for letter in "hir")


def test_a_line_that_is_over_at_once_has_its_letter_midway():
    short = curve("impulse", values=np.r_[1.0, np.zeros(511)], horizon=1)
    text = "\n".join(drawn(curve(), short, ascii_only=False))
    assert "i" in text.rpartition("└")[0]


def test_nothing_to_draw_is_no_picture():
    assert drawn() == []
    assert drawn(of_kind("memoryless", values=np.zeros(512))) == []
    assert drawn(curve(values=np.zeros(0))) == []
    assert drawn(curve(values=np.full(512, np.nan))) == []


@pytest.mark.parametrize("values", [np.ones(1), np.ones(512), np.r_[1e300, 1e-300], np.ones(2)])
@pytest.mark.parametrize("kind", ["exponential", "polynomial"])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_odd_curves_are_drawn_in_the_width(values, kind, ascii_only):
    lines = drawn(of_kind(kind, values=values, floor=0.0), ascii_only=ascii_only)
    assert len(lines) == 8
    assert max(map(len, lines)) <= 47


def test_a_curve_is_heard_until_it_sinks_into_its_floor():
    lags, values = heard(curve(values=np.r_[1.0, 0.1, 0.01, 0.001, 0.001], floor=1e-3))
    assert lags.tolist() == [1, 2, 3]
    assert values.tolist() == [1.0, 0.1, 0.01]


def test_a_floor_far_below_all_that_is_heard_is_not_drawn():
    present = curve("impulse", values=np.r_[1.0, np.zeros(511)], floor=1e-14)
    assert floor({"impulse": present}) is None
    sunk = curve(values=np.exp(-0.1 * np.arange(1, 513)), floor=1e-14)
    assert floor({"heaviside": sunk}) == 1e-14
    assert floor({"heaviside": curve(floor=0.0)}) is None


def test_a_power_law_is_straight():
    *rows, _, lags = drawn(power_law(), width=80, height=12)
    ends = [len(row.rstrip()) for row in rows if "h" in row]
    assert len(ends) > 6
    assert set(np.diff(ends[1:-1])) <= {9, 10, 11}
    assert lags.split() == ["1", "10", "100", "512", "lag"]


@pytest.mark.parametrize(
    ("first", "last", "powers", "expected"),
    [
        (0, 511, False, [0, 100, 200, 300, 400, 500]),
        (1, 512, False, [1, 100, 200, 300, 400, 500]),
        (0, 7, False, [0, 2, 4, 6]),
        (0, 0, False, [0]),
        (0, 511, True, [1, 10, 100]),
        (3, 20, True, [3, 10]),
    ],
)
def test_ticks_are_round(first, last, powers, expected):
    assert ticks(scale(first, last, powers=powers)) == expected


def test_horizons_in_one_place_stand_side_by_side():
    lines = [Line(letter, "red", 20, {}) for letter in "abc"]
    rule, _ = lag_axis(scale(0, 40), lines, 40, ascii_only=True)
    assert "-abc-" in rule.plain
    last = [Line(letter, "red", 40, {}) for letter in "ab"]
    rule, _ = lag_axis(scale(0, 40), last, 40, ascii_only=True)
    assert rule.plain.endswith("ba")
    beyond = [Line("a", "red", 41, {}), Line("b", "red", None, {})]
    rule, _ = lag_axis(scale(0, 40), beyond, 40, ascii_only=True)
    assert not {"a", "b"} & set(rule.plain)
