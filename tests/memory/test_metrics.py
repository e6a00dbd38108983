"""The numbers of memory curves and assumptions: names that stay, and nothing that was not seen."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from memaudit.memory.result import AssumptionsResult, Decay, MemoryResult, Status
from memaudit.report import Metric
from memaudit.rules import judge
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


def number(made: MemoryResult, name: str) -> Metric:
    return next(metric for metric in made.metrics() if metric.key == name)


def memory(*curves, **changes) -> MemoryResult:
    return replace(report(*curves)["memory"], **changes)


def host(**parts) -> MemoryResult:
    return MemoryResult.joined({name: memory(*curves) for name, curves in parts.items()})


def hidden(query: str = "heaviside"):
    return curve(query, floor=0.01, horizon=None)


def test_the_numbers_of_a_small_report_one_by_one():
    slower = curve("impulse", horizon=200, half_life=20.0)
    assert report(curve(), slower).metrics() == {
        "memaudit/horizon": 139.0,
        "memaudit/half_life": 13.86,
        "memaudit/rate": 0.05,
        "memaudit/confidence": 0.0,
        "memaudit/heaviside/horizon": 139.0,
        "memaudit/heaviside/half_life": 13.86,
        "memaudit/heaviside/rate": 0.05,
        "memaudit/heaviside/confidence": 0.0,
        "memaudit/impulse/horizon": 200.0,
        "memaudit/impulse/half_life": 20.0,
        "memaudit/impulse/rate": 0.05,
        "memaudit/impulse/confidence": 0.0,
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


def test_a_gate_knows_how_far_was_looked():
    metric = number(memory(power_law()), "horizon")
    assert (metric.value, metric.beyond, metric.within) == (math.inf, 512.0, "horizon")


def test_one_query_inside_the_window_is_the_horizon_of_the_model():
    found = report(power_law(), curve("impulse")).metrics()
    assert found["memaudit/horizon"] == 139.0
    assert "memaudit/horizon_beyond" not in found
    assert found["memaudit/heaviside/horizon_beyond"] == 512.0


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


def test_of_two_equal_horizons_the_one_without_a_caveat_is_named():
    made = memory(curve("impulse", status=Status.UNSETTLED), curve("heaviside"))
    assert number(made, "horizon").holder == "heaviside"


def test_a_horizon_that_the_floor_hides_is_no_number():
    assert not [name for name in report(hidden()).metrics() if "horizon" in name]
    assert number(memory(hidden()), "heaviside/horizon").value is None


def test_a_query_that_could_not_be_put_has_no_numbers():
    none = np.zeros(0)
    shut = of_kind("undetermined", "context", values=none, status=Status.NO_TOKENS)
    assert report(shut).metrics() == ALWAYS


def test_layers_stand_behind_a_slash_and_do_not_fold_into_the_model():
    far = curve(horizon=80)
    made = report(curve(), layers={"a.0": {"heaviside": far}}, whole=True).metrics()
    assert made["memaudit/heaviside/horizon/a.0"] == 80.0
    assert made["memaudit/heaviside/horizon"] == made["memaudit/horizon"] == 139.0


def test_names_of_a_checkpoint_are_cleaned():
    made = report(layers={"\x1b[31m\u202ea\nb": {"heaviside": curve()}})
    assert "memaudit/heaviside/horizon/[31ma b" in made.metrics()


def test_a_decay_without_a_number_has_none():
    found = report(curve(decay=Decay("persistent", confidence=0.5), horizon=None)).metrics()
    assert found["memaudit/confidence"] == 0.5
    assert "memaudit/rate" not in found


def test_of_half_lives_beyond_all_windows_the_one_that_was_looked_at_least_far_is_named():
    late = power_law("impulse", values=np.where(LAGS < 400, 0.6, 1.0), half_life=None)
    flat = power_law(values=np.ones(len(LAGS)), half_life=None)
    metric = number(memory(flat, late), "half_life")
    assert (metric.holder, metric.value, metric.beyond) == ("impulse", math.inf, 112.0)


# What is not known


def test_a_query_that_shows_no_horizon_might_lower_that_of_the_model():
    metric = number(memory(curve(), hidden("impulse")), "horizon")
    assert (metric.value, metric.over, metric.unknown) == (139.0, "min", ("impulse",))


def test_a_query_that_was_lost_might_lower_every_number():
    made = memory(curve(), requested=("heaviside", "impulse"))
    assert number(made, "horizon").unknown == number(made, "rate").unknown == ("impulse",)


def test_a_curve_of_another_kind_is_no_gap_of_the_rate():
    made = memory(curve(), power_law("impulse"), of_kind("undetermined", "reversed"))
    assert number(made, "rate").unknown == ("reversed",)


def test_a_query_with_a_shorter_window_bounds_the_horizon_of_the_model():
    brief = power_law("impulse", values=LAGS[:64] ** -0.5)
    metric = number(memory(curve(), brief), "horizon")
    assert (metric.value, metric.beyond, metric.unknown) == (139.0, 64.0, ())


def test_the_longest_part_of_a_host_speaks_for_it_and_unseen_ones_might_raise_it():
    made = host(a=[curve(horizon=20)], b=[curve(horizon=90)], c=[hidden()])
    one = number(made, "heaviside/horizon")
    assert (one.value, one.holder, one.over, one.unknown) == (90.0, "b", "max", ("c",))
    whole = number(made, "horizon")
    assert (whole.value, whole.holder, whole.over) == (90.0, "heaviside", "max")
    assert whole.unknown == ("c",)


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


def test_an_assumption_that_one_part_did_not_measure_might_fail_there():
    made = AssumptionsResult((assumption("causal", True), assumption("causal", None, where="b")))
    (metric,) = made.metrics()
    assert (metric.key, metric.value, metric.unknown) == ("assumptions/causal", 1.0, ("b",))
