"""Pictures as plain data: what is drawn of a curve, on which axes, in which colours."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest

from memaudit.data import page_file
from memaudit.reports.page.axes import COLOURS, DEPTHS, decades, depth_colour, pairs, powers
from memaudit.reports.page.curves import fit
from memaudit.reports.page.detail import DETAILS, spread
from memaudit.reports.page.figure import unique
from memaudit.reports.page.memory import panel
from memaudit.reports.page.stability import stability_section
from tests.handmade import LAGS, curve, of_kind, power_law
from tests.reports.handmade_page import everything

FINE = DETAILS[0]


def series(figure, name: str) -> dict:
    return next(s for s in figure.views[0].option["series"] if s["name"] == name)


def test_a_curve_is_drawn_with_median_fit_window_floor_and_horizon():
    drawn = panel("heaviside", curve(floor=1e-9), "$c1", FINE, logarithmic=False)
    names = [s["name"] for s in drawn.views[0].option["series"]]
    assert names == ["supremum", "median", "fit", "window", "floor", "horizon"]
    assert [key.name for key in drawn.views[0].keys] == names
    assert series(drawn, "supremum")["data"][:2] == [[1, 0.95123], [2, 0.90484]]
    assert {x for x, _ in series(drawn, "horizon")["data"]} == {139}
    assert {y for _, y in series(drawn, "floor")["data"]} == {1e-9}
    assert series(drawn, "window")["markArea"]["data"] == [[{"xAxis": 1}, {"xAxis": 512}]]
    assert drawn.views[0].option["yAxis"]["type"] == "log"


def test_options_are_strict_json():
    made = everything().memory["reversed"]
    drawn = panel("reversed", made, "$c1", FINE, logarithmic=False)
    json.dumps(drawn.views[0].data(), allow_nan=False)


@pytest.mark.parametrize(
    ("made", "expected"),
    [(curve(), np.exp(-0.05 * LAGS)), (power_law(), LAGS**-0.5)],
)
def test_the_line_of_a_fit_lies_on_the_curve_that_it_fits(made, expected):
    for lag, height in fit(made):
        assert height == pytest.approx(expected[int(lag) - 1], rel=1e-4)


def test_kinds_without_a_number_have_no_fit():
    assert fit(of_kind("persistent")) == []


def test_values_that_a_logarithm_cannot_show_are_gaps():
    assert pairs(np.arange(3), np.asarray([1.0, 0.0, math.inf])) == [[0, 1.0], [1, None], [2, None]]


def test_axes_end_at_powers_of_ten():
    assert decades([0.02, 3.0]) == (-2, 1)
    assert decades([]) == (-1, 0)
    axis = powers("y", [1e-13, 0.3], gap=1)
    assert (axis["min"], axis["max"], axis["interval"]) == (1e-14, 1.0, 2)


@pytest.mark.parametrize("most", [1, 2, 5, 16, 256])
@pytest.mark.parametrize("count", [0, 1, 2, 15, 300, 100_000])
def test_a_thinned_line_keeps_its_ends_and_its_order(count, most):
    places = spread(count, most)
    assert len(places) <= most
    assert sorted(set(places.tolist())) == places.tolist()
    if count:
        assert places[0] == 0
        assert places[-1] == count - 1 or most == 1


def test_names_of_curves_are_told_apart():
    assert unique(["a", "a\x00", "", "a"]) == ["a", "a (2)", "(no name)", "a (3)"]


def test_a_name_that_looks_like_a_numbered_one_is_told_apart_as_well():
    assert unique(["a", "a\x00", "a (2)"]) == ["a", "a (2)", "a (2) (2)"]


@pytest.mark.parametrize("values", [[1e-3, 1.5e308], [1.7e308], [1e308, 1.1e308]])
def test_an_axis_ends_where_numbers_end(values):
    made = powers("memory", values, gap=28)
    assert 0 < made["min"] < made["max"] == 1e308


def test_number_formats_lie_on_the_axis_of_the_moves():
    section = stability_section(everything(), FINE)
    assert section is not None
    drawn = "".join(block for block in section.blocks if block)
    view = json.loads(re.search(r'class="view">(.*?)</script>', drawn)[1])
    key = f"s{view['names'].index('number formats')}"
    dots = next(s for s in view["option"]["series"] if s["name"] == key)
    assert {d["name"]: d["value"] for d in dots["data"]} == {
        "bf16": [0.001, 0.1],
        "fp16": [1e-06, 0.0001],
    }
    radii = [s for s in view["option"]["series"] if s.get("lineStyle", {}).get("type") == "dashed"]
    assert [s["data"][0][0] for s in radii] == [0.05]


def luminance(hue: str) -> float:
    parts = [int(hue[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def themes() -> dict[str, dict[str, str]]:
    style = page_file("style.css")
    blocks = {
        "light": re.search(r':root, \[data-theme="light"\] \{(.*?)\}', style, re.DOTALL),
        "dark": re.search(r'^\s*\[data-theme="dark"\] \{(.*?)\}', style, re.DOTALL | re.MULTILINE),
        "system": re.search(r":root:not\(\[data-theme\]\) \{(.*?)\}", style, re.DOTALL),
    }
    return {
        name: dict(re.findall(r"--([\w-]+): ?(#[0-9a-f]{6})", block[1]))
        for name, block in blocks.items()
    }


def test_the_dark_page_is_the_same_whoever_asks_for_it():
    assert themes()["dark"] == themes()["system"]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_and_lines_stand_out_from_the_paper(theme):
    hues = themes()[theme]
    for name in ("ink", "soft", "link", "accent", "horizon"):
        assert contrast(hues[name], hues["paper"]) >= 4.5, name
        assert contrast(hues[name], hues["wash"]) >= 4.5, name
    for name in ("error", "warning", "note", "good"):
        assert contrast(hues[name], hues[f"{name}-wash"]) >= 4.5, name
    drawn = [hue.strip("$") for hue in COLOURS]
    drawn += [depth_colour(k, DEPTHS).strip("$") for k in range(DEPTHS)]
    assert min(contrast(hues[name], hues["paper"]) for name in drawn) >= 4.5
