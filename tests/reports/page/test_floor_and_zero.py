"""What lies at or below what can be seen: floors, horizons of 0, margins of nearly nothing."""

from __future__ import annotations

import json
import re

import numpy as np

from memaudit.report import GateResult
from memaudit.reports.notebook import notebook_html
from memaudit.reports.page.detail import DETAILS
from memaudit.reports.page.judged import gates_told
from memaudit.reports.page.layers import layers_section
from memaudit.reports.page.memory import memory_section, panel
from memaudit.reports.page.sparkline import HEIGHT, WIDTH, sparkline
from memaudit.reports.page.spectrum import spectrum_section
from tests.handmade import LAGS, curve, of_kind, report
from tests.reports.handmade_page import everything, modes

FINE = DETAILS[0]
BOTTOM = HEIGHT - 1
SILENT = np.zeros(len(LAGS))


def strokes(drawn: str) -> list[list[tuple[float, float]]]:
    """The lines of a sparkline, each as its points."""
    path = re.search(r' d="M([^"]*)"', drawn)
    pieces = path[1].split("M") if path else []
    return [[tuple(map(float, p.split())) for p in piece.split("L")] for piece in pieces]


def views(section) -> list[dict]:
    drawn = "".join(block for block in section.blocks if block)
    return [json.loads(found) for found in re.findall(r'class="view">(.*?)</script>', drawn)]


def sinking(noise: float = 1e-14):
    """A curve that is half of what was measured, then noise below its floor."""
    values = np.where(len(LAGS) // 2 >= LAGS, np.exp(-0.05 * LAGS), noise)
    return curve(values=values, floor=1e-12)


def test_a_sparkline_ends_where_the_curve_sinks_into_its_floor():
    for noise in (1e-14, 0.0):
        (line,) = strokes(sparkline(sinking(noise)))
        assert line[-1][1] == BOTTOM
        assert WIDTH * 0.45 < line[-1][0] < WIDTH * 0.6
        assert [y for _, y in line].count(BOTTOM) == 1, "no flat line follows"


def test_a_sparkline_goes_on_where_a_curve_rises_again():
    values = np.exp(-0.05 * LAGS)
    values[100:300] = 1e-14
    values[300:400] = 0.1
    values[400:] = 1e-14
    first, second = strokes(sparkline(curve(values=values, floor=1e-12)))
    assert first[0][0] < first[-1][0] < second[0][0] < second[-1][0] < WIDTH * 0.85
    assert {first[-1][1], second[0][1], second[-1][1]} == {BOTTOM}


def test_a_sparkline_of_noise_alone_is_empty():
    assert sparkline(curve(values=np.full(len(LAGS), 1e-14), floor=1e-12)) == ""


def test_a_curve_far_above_its_floor_reaches_the_right_edge():
    (line,) = strokes(sparkline(curve()))
    assert line[-1][0] == WIDTH - 1


def test_a_notebook_draws_no_floor_as_memory_either():
    (line,) = strokes(notebook_html(report(sinking())))
    assert line[-1][0] < WIDTH * 0.6


def test_a_gate_that_was_not_hit_has_passed():
    gates = [GateResult("a", hit=True, told="x"), GateResult("b", hit=False)]
    section = gates_told(gates, FINE)
    assert section is not None
    drawn = "".join(block for block in section.blocks if block)
    assert re.findall(r'class="kind (\w+)">(\w+)<', drawn) == [("error", "hit"), ("good", "passed")]


def test_a_curve_of_which_nothing_is_heard_is_a_sentence_and_no_plot():
    silent = of_kind("memoryless", values=SILENT, floor=5.31e-18, horizon=0)
    drawn = panel("reversed", silent, "$c1", FINE, logarithmic=False).markup()
    assert (
        "Not drawn: nothing rises above the numerical floor (5.31e-18) at any of 512 lags." in drawn
    )
    assert 'class="plot"' not in drawn
    assert "data-chart" not in drawn
    assert "Data tables" in drawn


def test_curves_of_which_none_is_heard_have_no_plot_together():
    silent = {q: of_kind("memoryless", q, values=SILENT, floor=1e-18) for q in ("a", "b")}
    assert views(memory_section(report(*silent.values()), FINE)) == []
    both = report(curve("heaviside"), silent["a"])
    assert len(views(memory_section(both, FINE))) == 2, "the overview and the one that is heard"


def layered(*horizons: int):
    layers = {f"l{k}": {"impulse": curve("impulse", horizon=h)} for k, h in enumerate(horizons)}
    return layers_section(everything(layers=layers), FINE)


def test_a_horizon_of_zero_is_not_drawn_as_one_step():
    section = layered(0, 1, 39)
    view = views(section)[0]
    axis = view["option"]["xAxis"]
    assert [d["value"][0] for d in view["option"]["series"][0]["data"]] == [0.1, 1.0, 39.0]
    assert (axis["min"], axis["interval"], axis["axisLabel"]["formatter"]) == (0.1, 1, "zero")
    assert "At the left edge: 0, nothing is remembered." in "".join(section.blocks)
    assert view["tip"] == [], "the place of a 0 is no number to be told"


def test_without_a_horizon_of_zero_the_axis_begins_at_one_step():
    section = layered(1, 39)
    axis = views(section)[0]["option"]["xAxis"]
    assert (axis["min"], axis["axisLabel"]["formatter"]) == (1.0, "power")
    assert "left edge" not in "".join(section.blocks)


def test_a_query_that_no_layer_hears_is_told_and_has_no_view():
    silent = of_kind("memoryless", "reversed", values=SILENT, floor=1e-18)
    layers = {f"l{k}": {"impulse": curve("impulse"), "reversed": silent} for k in range(2)}
    section = layers_section(everything(layers=layers), FINE)
    assert len(views(section)) == 2, "horizons, and the curves of the other query"
    assert "Nothing above the floor in any layer: reversed." in "".join(section.blocks)


def test_the_unit_circle_lies_above_the_circle_of_the_margin():
    section = spectrum_section(report(curve(), spectrum=(modes("layers.0"),)), FINE)
    view = views(section)[0]
    above = {view["names"][int(s["name"][1:])]: s["z"] for s in view["option"]["series"]}
    assert above["margin"] < above["unit circle"] < above["at rest"]
    assert "below the solid line where the margin is too small to be seen" in section.blocks[1]
