"""What a memory result shows: the headline, tables of numbers, figures of curves."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from memaudit.memory.result import AssumptionsResult, MemoryResult, Status
from memaudit.sections import Beyond
from tests.handmade import LAGS, assumption, curve, of_kind, power_law, report


def sections(*curves, **changes):
    return list(replace(report(*curves)["memory"], **changes).sections())


def column(table, name: str) -> list:
    place = [c.name for c in table.columns].index(name)
    return [row[place] for row in table.rows]


@pytest.mark.parametrize(
    ("curves", "headline"),
    [
        ([curve()], "Remembers 139 steps (query heaviside)."),
        ([curve(horizon=1)], "Remembers 1 step (query heaviside)."),
        ([power_law()], "Remembers more than 512 steps (query heaviside)."),
        (
            [power_law(), curve("impulse")],
            "Remembers 139 steps (query impulse, the shortest; under heaviside more than 512 "
            "steps).",
        ),
        (
            [of_kind("memoryless", horizon=0, values=np.zeros(512))],
            "No trace of an earlier input is seen in the answers (query heaviside).",
        ),
        (
            [curve(floor=0.01, horizon=None)],
            "Remembers until the numerical floor hides it (query heaviside).",
        ),
        (
            [of_kind("undetermined", status=Status.TOO_FEW_LAGS)],
            "No memory curve could be judged.",
        ),
    ],
)
def test_the_headline_is_the_horizon_of_the_metrics(curves, headline):
    assert sections(*curves)[0].headline == headline


def test_the_line_has_every_query():
    section = sections(curve(), power_law("impulse"))[0]
    assert section.line == "heaviside exponential, horizon 139; impulse polynomial, horizon > 512"


def test_the_table_holds_numbers_and_only_columns_that_are_used():
    (table,) = sections(curve(), power_law("impulse"))[0].tables
    assert table.keys() == [("heaviside",), ("impulse",)]
    assert column(table, "rate") == [0.05, None]
    assert column(table, "exponent") == [None, 0.5]
    assert column(table, "half-life") == [13.86, 4.0]
    assert column(table, "horizon") == [139, Beyond(512)]
    assert column(table, "interval") == ["[0.0499, 0.0501]", "[0.49, 0.51]"]
    assert column(table, "window") == ["1-512", "8-512"]
    assert "support" not in [c.name for c in table.columns]


def test_a_horizon_behind_the_floor_is_a_question_mark_with_a_note():
    section = sections(curve(floor=0.01, horizon=None))[0]
    assert column(section.tables[0], "horizon") == ["?"]
    assert "heaviside: the floor hides the horizon" in section.text


def test_the_figure_has_the_curve_its_fit_over_the_window_its_horizon_and_its_floor():
    (figure,) = sections(curve(floor=1e-12))[0].figures
    assert figure.y.log
    assert not figure.x.log
    measured, median, fit = figure.series
    assert (measured.name, median.shown, fit.dashed) == ("heaviside", False, True)
    np.testing.assert_array_equal(measured.y, np.exp(-0.05 * LAGS))
    # The fit of an exact exponential is that exponential.
    np.testing.assert_allclose(fit.y, np.exp(-0.05 * fit.x), rtol=1e-9)
    marks = {mark.label: mark for mark in figure.marks}
    assert marks["horizon 139"].x == 139
    assert marks["window of the fit"].span == (1, 512)
    assert marks["floor"].y == 1e-12


def test_a_power_law_is_drawn_over_logarithmic_lags():
    (figure,) = sections(power_law())[0].figures
    fit = next(line for line in figure.series if line.name == "heaviside, fit")
    assert figure.x.log
    np.testing.assert_allclose(fit.y, fit.x**-0.5, rtol=1e-9)


def test_a_curve_below_its_floor_is_named_and_not_drawn():
    section = sections(of_kind("memoryless", values=np.zeros(512), horizon=0))[0]
    assert section.figures == ()
    assert "Nothing rises above the floor: heaviside." in section.text


def test_layers_have_a_row_each_and_the_longest_is_named():
    layers = {"a": {"heaviside": curve(horizon=20)}, "b": {"heaviside": curve(horizon=90)}}
    _, section = sections(curve(), layers=layers)
    (table,) = section.tables
    assert table.keys() == [("a",), ("b",)]
    assert column(table, "heaviside kind") == ["exponential", "exponential"]
    assert column(table, "heaviside horizon") == [20, 90]
    assert section.line == "longest memory: b (heaviside)"
    horizons, curves = section.figures
    assert [list(p.y) for p in horizons.series] == [[20.0, 90.0]]
    assert [line.name for line in curves.series] == ["a", "b"]


def test_a_host_of_one_part_does_not_repeat_it():
    made = MemoryResult.joined({"only": report(curve())["memory"]})
    assert [section.title for section in made.sections()] == ["Memory"]


def test_assumptions_are_a_table_with_parts_only_where_there_are_any():
    one = AssumptionsResult((assumption("causal", True), assumption("linear", False)))
    (section,) = one.sections()
    assert section.line == "fails: linear"
    assert column(section.tables[0], "verdict") == ["holds", "fails"]
    assert section.tables[0].keys() == [("causal",), ("linear",)]
    (section,) = AssumptionsResult.joined({"a": one, "b": one}).sections()
    assert section.tables[0].keys()[2] == ("causal", "b")


def test_names_from_outside_are_cleaned():
    made = report(curve("\x1b[31mred"), layers={"\x1b[2J": {"q\x1b": curve()}, "b": {}})
    shown = [str(cell) for s in made.sections() for t in s.tables for row in t.rows for cell in row]
    assert not [text for text in shown if "\x1b" in text]


def test_a_curve_prints_its_verdict():
    assert repr(curve()) == (
        "Curve(heaviside: exponential, rate 0.05 [0.0499, 0.0501], seen over lags 1 to 512; "
        "horizon 139, half-life 13.86, 512 lags)"
    )


def test_the_probe_and_its_rules_load_without_torch():
    code = "import sys, memaudit.memory.probe; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
