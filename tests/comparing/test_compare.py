"""Two reports side by side: laws of the record, and every section of it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from memaudit.comparing import compare
from memaudit.comparing.curves import apart
from memaudit.memory.result import Decay
from memaudit.report import Finding, Report
from memaudit.stability.result import Stability
from memaudit.testing.moved_samples import gradients, precision, stability
from tests.handmade import (
    LAGS,
    assumption,
    curve,
    identity,
    linear_layer,
    of_kind,
    power_law,
    report,
)
from tests.recall.handmade import sample as recall
from tests.spectrum.evidence import modes


def finding(code: str = "MA201", message: str = "margin 1e-05", **changes) -> Finding:
    fields = {"name": "near-boundary", "severity": "warning", "advice": "look", "where": "cell"}
    return Finding(code=code, message=message, **{**fields, **changes})


def full(**changes) -> Report:
    fields = {
        "spectrum": (modes(0.97), modes(0.5, layer="layers.1")),
        "closed_form": (linear_layer(),),
        "stability": stability(),
        "precision": precision(),
        "gradient": gradients(),
        "recall": recall(),
        "assumptions": (assumption("causal", True), assumption("linear", False)),
        "findings": (finding(), finding("MA106", "beyond 512", where="")),
        "layers": {"layers.0": {"impulse": curve("impulse")}},
    }
    return report(curve(), curve("impulse"), **{**fields, **changes})


REPORTS = {
    "bare": report(),
    "full": full(),
    "grown": full(
        memory={"heaviside": of_kind("growing"), "reversed": power_law("reversed")},
        spectrum=(modes(1.01, parameterization="direct"), modes(0.5, layer="layers.2")),
        findings=(finding("MA202", "beyond"), finding(message="margin 2e-05")),
        subject=identity(sha256="f" * 64, dtype="float32"),
    ),
    "other settings": full(settings={"horizon": 1024, "seed": 0, "probes": ["spectrum"]}),
    "without probes": report(curve(), power_law("impulse"), layers={"layers.1": {}}),
    "twins": full(findings=(finding(), finding(), finding(message="other words"))),
}
EVERY = [pytest.param(item, id=name) for name, item in REPORTS.items()]


@pytest.mark.parametrize("item", EVERY)
def test_a_report_and_itself_have_no_difference(item):
    found = compare(item, item)
    assert not found.changed
    assert found.comparable
    assert found.mirrored() == found


@pytest.mark.parametrize("item", EVERY)
def test_a_report_and_what_was_saved_of_it_have_no_difference(item, tmp_path):
    assert not compare(item, Report.load(item.save(tmp_path / "report.json"))).changed


@pytest.mark.parametrize("before", EVERY)
@pytest.mark.parametrize("after", EVERY)
def test_the_other_order_is_the_mirror_image(before, after):
    assert compare(before, after).mirrored() == compare(after, before)


def test_different_reports_differ():
    for name, item in REPORTS.items():
        others = [other for other in REPORTS if other != name]
        assert all(compare(item, REPORTS[other]).changed for other in others)


def only(changes):
    (found,) = [change for change in changes if change.changed]
    return found


def test_a_verdict_that_changed_is_told_with_both_sides():
    moved = replace(
        curve(), decay=Decay("exponential", rate=0.1, interval=(0.09, 0.11)), horizon=69
    )
    change = only(compare(report(curve()), report(moved)).memory)
    assert change.differing == ("rate", "interval", "horizon")
    assert (change.before["rate"], change.after["rate"]) == (0.05, 0.1)
    assert change.apart is None


def test_a_horizon_beyond_the_window_is_a_word():
    change = only(compare(report(curve()), report(power_law())).memory)
    assert (change.before["horizon"], change.after["horizon"]) == (139, "beyond 512")
    silent = compare(report(curve()), report(of_kind("memoryless")))
    assert only(silent.memory).after["horizon"] == "none"


def test_a_query_that_one_report_lacks_came_or_went():
    found = compare(report(curve()), report(curve("impulse")))
    assert [(c.name, c.came, c.went) for c in found.memory] == [
        ("heaviside", False, True),
        ("impulse", True, False),
    ]


def test_the_largest_ratio_of_two_exponentials_is_at_their_last_common_lag_above_the_floor():
    slow, fast = curve(floor=0.0), curve(values=np.exp(-0.06 * LAGS[:300]), floor=0.0)
    found = apart(slow, fast)
    assert found is not None
    assert found.lag == 300
    assert found.ratio == pytest.approx(math.exp(-0.01 * 300), rel=1e-12)


def test_what_the_floors_explain_is_no_difference():
    noisy = curve(values=np.exp(-0.05 * LAGS) + 1e-9 * (LAGS % 2), floor=1e-9)
    assert apart(curve(floor=1e-9), noisy) is None
    assert apart(curve(floor=1e-12), replace(noisy, floor=1e-12)) is not None


def test_a_value_below_the_floors_counts_as_the_larger_floor():
    dead = curve(values=np.where(LAGS < 100, np.exp(-0.05 * LAGS), 0.0), floor=1e-6)
    found = apart(curve(), dead)
    assert found is not None
    assert (found.lag, found.after) == (100, 1e-6)
    assert found.before == pytest.approx(math.exp(-5.0))


def test_curves_in_different_units_or_without_a_common_lag_have_no_ratio():
    assert apart(curve(), curve(normalization="l2", values=2 * curve().values)) is None
    later = replace(curve(), lags=LAGS + 1000)
    assert apart(curve(), later) is None


def test_layers_are_compared_by_their_name():
    before = full(spectrum=(modes(0.97), modes(0.5, layer="layers.1")))
    after = full(spectrum=(modes(0.97, parameterization="best"), modes(0.5, layer="layers.1")))
    change = only(compare(before, after).spectrum)
    assert (change.name, change.differing) == ("layers.0", ("parameterization",))


def test_a_mode_on_the_boundary_has_an_infinite_time_scale_in_both():
    on_edge = full(spectrum=(modes(1.0),))
    assert not compare(on_edge, on_edge).changed
    change = only(compare(full(spectrum=(modes(0.9),)), on_edge).spectrum)
    assert change.after["time_scale"] == math.inf


def test_radii_are_compared_by_group_ball_and_part():
    near = stability()
    first, second = near.curves
    moved = replace(near, curves=(replace(first, radius=replace(first.radius, value=0.1)), second))
    change = only(compare(full(stability=near), full(stability=moved)).stability)
    assert (change.name, change.differing) == ("recurrent, spectral", ("radius",))
    parts = replace(near, where="encoder", others=(replace(near, where="decoder"),))
    assert isinstance(parts, Stability)
    found = compare(full(stability=parts), full(stability=parts)).stability
    assert [change.where for change in found] == ["encoder"] * 2 + ["decoder"] * 2


def test_a_format_that_became_safe_is_told():
    before = precision()
    bad, good = before.roundings
    cured = replace(before, roundings=(replace(good, format=bad.format), good))
    change = only(compare(full(), full(precision=cured)).precision)
    assert (change.before["verdict"], change.after["verdict"]) == ("boundary", "safe")


def test_a_recommendation_that_changed_is_told():
    other = tuple(replace(item, recommended="", current="best") for item in gradients())
    change = only(compare(full(), full(gradient=other)).gradient)
    assert (change.before["recommended"], change.after["recommended"]) == ("best", "")
    assert (change.before["ratio"], change.after["ratio"]) == (40.0, 2.0)


@pytest.mark.parametrize("field", ["stability", "precision", "gradient", "spectrum", "assumptions"])
def test_a_section_that_only_one_report_has_is_named_and_not_compared(field):
    empty = None if field in ("stability", "precision") else ()
    found = compare(full(), full(**{field: empty}))
    assert getattr(found, field) == ()
    assert found.sections.differing == (field,)


def test_findings_come_go_and_stay():
    went, stayed, came = finding("MA101"), finding(), finding("MA301")
    found = compare(full(findings=(went, stayed)), full(findings=(stayed, came)))
    told = {change.name: (change.came, change.went) for change in found.findings}
    assert told == {"MA101": (False, True), "MA201": (False, False), "MA301": (True, False)}


def test_a_finding_with_other_numbers_stayed():
    before = (finding(message="margin 1e-05, 3 modes"),)
    after = (finding(message="margin 2.5e-06, 4 modes"),)
    (change,) = compare(full(findings=before), full(findings=after)).findings
    assert change.differing == ("message",)


def test_of_several_findings_of_one_code_the_right_one_went():
    bf16, int8 = (finding("MA205", f"{name} moves modes") for name in ("bf16", "int8"))
    found = compare(full(findings=(bf16, int8)), full(findings=(int8,))).findings
    assert [(c.went, (c.before or {})["message"]) for c in found if c.changed] == [
        (True, "bf16 moves modes")
    ]


def test_settings_that_move_no_number_leave_the_curves_comparable():
    plain = {"horizon": 512, "probes": ["spectrum"]}
    before = report(curve(), settings=plain)
    assert compare(before, report(curve(), settings={**plain, "probes": []})).comparable
    longer = compare(before, report(curve(), settings={**plain, "horizon": 1024}))
    assert not longer.comparable
    assert longer.settings.differing == ("horizon",)


def test_another_machine_is_no_change_of_the_model():
    other = report(curve(), environment={"python": "3.13"}, timing={"total": 9.0})
    found = compare(report(curve()), other)
    assert not found.changed
    assert set(found.environment.differing) == {"python", "memaudit"}


def test_the_capacity_of_every_state_is_told_before_and_after():
    before = recall()
    first, *rest = before.decodings
    after = replace(before, decodings=(replace(first, capacity=9.5), *rest))
    found = compare(report(recall=before), report(recall=after))
    change = only(found.recall)
    assert (change.name, change.differing) == ("gru", ("capacity",))
    assert (change.before["capacity"], change.after["capacity"]) == (13.53, 9.5)
    assert [c.name for c in found.recall] == ["gru", "layer", "lost"]


def test_recall_that_one_report_lacks_is_named_as_a_section():
    found = compare(report(), report(recall=recall()))
    assert found.recall == ()
    assert "recall" in found.sections.differing
