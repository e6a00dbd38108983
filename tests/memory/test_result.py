"""Numbers, tables and figures of memory curves and assumptions."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from memaudit.interfaces import Status
from memaudit.memory.curve import AtSize
from memaudit.memory.result import AssumptionsResult, Facts, MemoryResult
from memaudit.rules import judge
from memaudit.sections import Beyond
from tests.handmade import LAGS, assumption, curve, of_kind, power_law, report

#: Numbers that every report has.
ALWAYS = {
    "memaudit/findings/error": 0.0,
    "memaudit/findings/warning": 0.0,
    "memaudit/findings/note": 0.0,
    "memaudit/coverage": 1.0,
    "memaudit/complete": 1.0,
    "memaudit/parameters": 4384.0,
}


def memory(*curves, **changes) -> MemoryResult:
    return replace(report(*curves)["memory"], **changes)


def test_the_numbers_of_a_small_report_one_by_one():
    slower = curve("impulse", horizon=200, half_life=20.0)
    assert report(curve(), slower).metrics() == {
        "memaudit/horizon": 139.0,
        "memaudit/half_life": 13.86,
        "memaudit/rate": 0.05,
        "memaudit/confidence": 0.9,
        "memaudit/heaviside/horizon": 139.0,
        "memaudit/heaviside/half_life": 13.86,
        "memaudit/heaviside/rate": 0.05,
        "memaudit/heaviside/confidence": 0.9,
        "memaudit/impulse/horizon": 200.0,
        "memaudit/impulse/half_life": 20.0,
        "memaudit/impulse/rate": 0.05,
        "memaudit/impulse/confidence": 0.9,
        **ALWAYS,
    }


def test_every_number_is_declared():
    made = memory(curve(), power_law("impulse"), layers={"a.0": {"heaviside": curve()}})
    queries = ("heaviside", "impulse")
    names = {m.name.replace("*", q) for m in MemoryResult.declared for q in queries}
    assert {metric.name for metric in made.metrics()} <= names


def test_a_horizon_beyond_the_window_is_the_window_under_another_name():
    found = report(power_law()).metrics()
    assert "memaudit/horizon" not in found
    assert "memaudit/heaviside/horizon" not in found
    assert found["memaudit/horizon_beyond"] == found["memaudit/heaviside/horizon_beyond"] == 512.0
    assert found["memaudit/exponent"] == 0.5


@pytest.mark.parametrize(
    ("blind", "baseline", "horizon"),
    [
        (("impulse", "reversed"), "zero", 139.0),  # MA114
        (("impulse", "reversed"), "natural", 0.0),
        (("impulse",), "zero", 0.0),  # the other one that ends in zeros sees something
        (("heaviside",), "zero", 139.0),  # MA115
        (("heaviside", "impulse", "reversed"), "zero", 0.0),  # none sees anything
    ],
)
def test_a_query_that_sees_nothing_by_what_it_feeds_is_not_the_number_of_the_model(
    blind, baseline, horizon
):
    queries = ("heaviside", "impulse", "reversed")
    curves = [of_kind("memoryless", q, horizon=0) if q in blind else curve(q) for q in queries]
    made = report(*curves, settings={"baseline": baseline})
    made = replace(made, results={"memory": memory(*curves, baseline=baseline)})
    assert made.metrics()["memaudit/horizon"] == horizon
    assert made.metrics()[f"memaudit/{blind[0]}/horizon"] == 0.0
    codes = {finding.code for finding in judge(made)}
    assert bool(codes & {"MA114", "MA115"}) == (horizon > 0)


def test_layers_stand_behind_a_slash_and_do_not_fold_into_the_model():
    far = curve(horizon=80)
    made = report(curve(), layers={"a.0": {"heaviside": far}}, whole=True).metrics()
    assert made["memaudit/heaviside/horizon/a.0"] == 80.0
    assert made["memaudit/heaviside/horizon"] == made["memaudit/horizon"] == 139.0


# What is not known


# Assumptions


def test_an_assumption_holds_where_it_holds_in_every_part():
    made = (
        assumption("causal", True, where="a"),
        assumption("causal", False, where="b"),
        assumption("linear", None),
        assumption("bounded", True),
    )
    found = report(assumptions=made).metrics()
    told = {k: v for k, v in found.items() if "assumptions" in k}
    assert told == {"memaudit/assumptions/causal": 0.0, "memaudit/assumptions/bounded": 1.0}


# What a memory result shows: the headline, tables of numbers, figures of curves.


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
            [of_kind("undetermined", status=Status.TOO_FEW_LAGS, floor=0.5)],
            "No memory curve could be judged.",
        ),
        (
            [of_kind("undetermined", status=Status.TOO_FEW_LAGS)],
            "Remembers more than 512 steps (query heaviside).",
        ),
    ],
)
def test_the_headline_is_the_horizon_of_the_metrics(curves, headline):
    assert sections(*curves)[0].headline == headline


def sized(*rows: tuple[float, float, int | None, int | None]) -> tuple[AtSize, ...]:
    return tuple(AtSize(size, peak, "exponential", end, beyond) for size, peak, end, beyond in rows)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([(0.25, 1.0, 423, None), (2.0, 9.0, 43, None)], "423 steps (heaviside at |x| = 0.25)."),
        ([(0.25, 1.0, 423, None), (2.0, 9.0, 423, None)], "423 steps (heaviside at |x| >= 0.25)."),
        (
            [(0.25, 1.0, None, 512), (2.0, 9.0, 43, None)],
            "more than 512 steps (heaviside at |x| = 0.25); --horizon 2048 looks further.",
        ),
        ([(0.25, 1.0, 60, None), (2.0, 9.0, 43, None)], None),
    ],
)
def test_memory_at_worst_is_that_of_the_size_that_is_remembered_longest(rows, told):
    worst = curve(horizon=43, sizes=sized(*rows))
    section = sections(curve("driven", normalization="none", horizon=100), worst)[0]
    assert section.under == (f"At worst: {told}" if told else "")


def test_memory_at_worst_says_which_query_is_no_part_of_it():
    cycle = sized((1.0, 1.0, None, 511), (64.0, 0.02, None, 511))
    used, turning = curve("driven", normalization="none"), of_kind("growing", sizes=cycle)
    under = sections(used, turning, curve("impulse", horizon=200))[0].under
    assert under == (
        "At worst: 200 steps (impulse). Left out: heaviside, an oscillation of bounded size "
        "(MA118)."
    )


@pytest.mark.parametrize("tokens", [True, False])
def test_the_headline_of_a_model_of_tokens_without_a_text_says_how_to_feed_one(tokens):
    used = curve("driven", normalization="none", fed="its embeddings in random order, 32 sequences")
    facts = Facts(causal=True, linear=False, outputs=1, rounding=1e-16, tokens=tokens)
    headline = sections(used, facts=facts)[0].headline
    assert ("--data FILE of token ids feeds yours" in headline) == tokens


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


def test_assumptions_are_a_table_with_parts_only_where_there_are_any():
    one = AssumptionsResult((assumption("causal", True), assumption("linear", False)))
    (section,) = one.sections()
    assert section.line == "fails: linear"
    assert column(section.tables[0], "verdict") == ["holds", "fails"]
    assert section.tables[0].keys() == [("causal",), ("linear",)]
    (section,) = AssumptionsResult.joined({"a": one, "b": one}).sections()
    assert section.tables[0].keys()[2] == ("causal", "b")


def test_the_probe_and_its_rules_load_without_torch():
    code = "import sys, memaudit.memory.probe; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
