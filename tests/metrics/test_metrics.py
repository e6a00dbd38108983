"""`report.metrics()`: flat names that stay, finite numbers, and nothing that was not measured."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import memaudit
from memaudit.findings.judge import judge
from memaudit.memory.result import Decay, Status
from memaudit.metrics import METRICS, PREFIX, described, measured, spoken, whole_holders
from memaudit.metrics.names import INNER
from memaudit.report import Finding
from memaudit.reports.html_page import HtmlPage
from memaudit.reports.markdown import Markdown
from memaudit.reports.overview import one_line
from memaudit.testing import sample_reports
from memaudit.testing.moved_samples import gradients, precision, stability
from memaudit.training.reading import Reading
from tests.handmade import LAGS, assumption, curve, of_kind, power_law, report
from tests.spectrum.evidence import modes

README = Path(__file__).parents[2] / "README.md"
#: Numbers that every report has.
ALWAYS = {
    "memaudit/findings/error": 0.0,
    "memaudit/findings/warning": 0.0,
    "memaudit/findings/note": 0.0,
    "memaudit/coverage": 1.0,
    "memaudit/complete": 1.0,
    "memaudit/parameters": 4384.0,
}


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


def test_a_horizon_beyond_the_window_is_the_window_under_another_name():
    found = report(power_law()).metrics()
    assert "memaudit/horizon" not in found
    assert "memaudit/heaviside/horizon" not in found
    assert found["memaudit/horizon_beyond"] == found["memaudit/heaviside/horizon_beyond"] == 512.0
    assert found["memaudit/exponent"] == 0.5


def test_one_query_inside_the_window_is_the_horizon_of_the_model():
    found = report(power_law(), curve("impulse")).metrics()
    assert found["memaudit/horizon"] == 139.0
    assert "memaudit/horizon_beyond" not in found
    assert found["memaudit/heaviside/horizon_beyond"] == 512.0


@pytest.mark.parametrize(
    ("deaf", "baseline", "horizon"),
    [
        (("impulse", "reversed"), "zero", 139.0),  # MA114
        (("impulse", "reversed"), "natural", 0.0),
        (("impulse",), "zero", 0.0),  # the other one that ends in silence hears something
        (("heaviside",), "zero", 139.0),  # MA115
        (("heaviside", "impulse", "reversed"), "zero", 0.0),  # nobody hears anything
    ],
)
def test_a_query_that_is_deaf_by_what_it_feeds_is_not_the_number_of_the_model(
    deaf, baseline, horizon
):
    queries = ("heaviside", "impulse", "reversed")
    curves = [of_kind("memoryless", q, horizon=0) if q in deaf else curve(q) for q in queries]
    made = report(*curves, settings={"baseline": baseline})
    assert made.metrics()["memaudit/horizon"] == horizon
    assert made.metrics()[f"memaudit/{deaf[0]}/horizon"] == 0.0
    told = {finding.code for finding in judge(made)}
    assert bool(told & {"MA114", "MA115"}) == (horizon > 0)


def test_the_number_of_the_model_is_the_same_in_every_report():
    late = curve("impulse", horizon=200, status=Status.UNSETTLED)
    made = report(late, curve("reversed", horizon=150), curve(horizon=150))
    assert made.metrics()["memaudit/horizon"] == 150.0
    assert whole_holders(made)["horizon"] == ("reversed", 150.0)
    assert "It remembers for **150 steps** (query reversed, the shortest" in Markdown().render(made)
    assert "<strong>150 steps</strong>" in HtmlPage().render(made)
    assert "remembers 150 steps (reversed)" in one_line(made)


def test_of_two_equal_horizons_the_one_without_a_caveat_is_named():
    made = report(curve("impulse", status=Status.UNSETTLED), curve("heaviside"))
    assert whole_holders(made)["horizon"] == ("heaviside", 139.0)


def test_a_horizon_that_the_floor_hides_is_no_number():
    values = np.exp(-0.05 * LAGS)
    hidden = curve(values=values, floor=0.01, horizon=None)
    assert not [name for name in report(hidden).metrics() if "horizon" in name]


def test_a_query_that_could_not_be_asked_has_no_numbers():
    none = np.zeros(0)
    shut = of_kind("undetermined", "context", values=none, status=Status.NO_TOKENS)
    assert report(shut).metrics() == ALWAYS


def test_layers_stand_behind_a_slash():
    made = report(curve(), layers={"a.0": {"heaviside": curve()}}, spectrum=(modes(0.9),))
    found = made.metrics()
    assert found["memaudit/heaviside/horizon/a.0"] == 139.0
    (layer,) = made.spectrum
    assert found["memaudit/margin"] == found[f"memaudit/margin/{layer.layer}"]
    assert found["memaudit/margin"] == pytest.approx(0.1)


def test_the_smallest_margin_of_all_layers_is_that_of_the_model():
    first, second = modes(0.9), replace(modes(0.99), layer="second")
    found = report(spectrum=(first, second)).metrics()
    assert found["memaudit/margin"] == pytest.approx(0.01)
    assert found["memaudit/time_scale"] == pytest.approx(-1 / math.log(0.99))


def test_a_layer_without_a_number_is_left_out():
    broken = replace(modes(0.9), layer="broken", margin=math.nan)
    found = measured(report(spectrum=(broken, modes(0.5))))
    assert found["margin"] == 0.5
    assert "margin/broken" not in found


def test_two_layers_of_one_name_keep_their_numbers():
    found = report(spectrum=(modes(0.9), modes(0.5))).metrics()
    margins = sorted(v for k, v in found.items() if k.startswith("memaudit/margin/"))
    assert margins == pytest.approx([0.1, 0.5])


def test_what_moved_weights_do():
    found = report(stability=stability(), precision=precision(), gradient=gradients()).metrics()
    told = {k.removeprefix(PREFIX): v for k, v in found.items() if k not in ALWAYS}
    assert told == {
        "radius": 0.05,
        "tolerance_radius": 0.05,
        "radius/recurrent": 0.05,  # that of the readout is infinite
        "precision/bf16/relative_error": 0.05,
        "precision/bf16/reached": 1.0,
        "precision/fp16/relative_error": 5e-5,
        "precision/fp16/reached": 0.0,
        "gradient_over_weight": 41.0,
        "gradient_over_weight/cell": 41.0,
    }


def test_a_radius_beyond_every_move_is_the_largest_move_under_another_name():
    made = stability()
    found = report(stability=replace(made, curves=made.curves[::-1])).metrics()
    assert "memaudit/radius" not in found
    assert found["memaudit/radius_beyond"] == 1.0


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


def test_findings_are_counted_by_level():
    made = [Finding("MA1", "x", severity, "", "") for severity in ("note", "note", "error")]
    found = report(findings=tuple(made)).metrics()
    levels = ("note", "warning", "error")
    assert [found[f"memaudit/findings/{level}"] for level in levels] == [2, 0, 1]


def test_fields_that_a_plugin_filled_are_left_alone():
    made = report(stability={"mine": 1}, precision=[1], recall="x")
    assert made.metrics() == ALWAYS


@pytest.mark.parametrize("name", ["full", "layered", "deep", "moved", "partial", "empty"])
def test_every_number_of_every_sample_is_finite_and_documented(name):
    made = sample_reports()[name]
    found = made.metrics()
    assert found
    for key, value in found.items():
        assert key.startswith(PREFIX)
        assert type(value) is float
        assert math.isfinite(value)
        assert described(key, tuple(made.memory)) is not None, key


def test_names_of_a_checkpoint_are_cleaned():
    made = report(layers={"\x1b[31m\u202ea\nb": {"heaviside": curve()}})
    assert "memaudit/heaviside/horizon/[31ma b" in made.metrics()


def test_infinite_numbers_are_kept_for_gates():
    found = measured(report(power_law(), spectrum=(modes(1.0),)))
    assert found["horizon"] == found["time_scale"] == math.inf


def test_the_callbacks_log_under_the_same_names():
    logged = Reading(1, {"cell": 2.0}, {"cell": 0.1}, 139.0, 512).logs()
    beyond = Reading(1, horizon=math.inf, window=512).logs()
    made = report(curve(), spectrum=(replace(modes(0.9), layer="cell"),), gradient=gradients())
    assert set(logged) <= set(made.metrics())
    assert beyond == {k: v for k, v in report(power_law()).metrics().items() if k in beyond}


def test_the_readme_has_every_name_and_no_other():
    text = README.read_text(encoding="utf-8")
    table = text[text.index("| metric |") :].split("\n\n")[0]
    names = [line.split("|")[1].strip().strip("`") for line in table.splitlines()[2:]]
    assert names == [metric.pattern for metric in METRICS]


@pytest.mark.parametrize(
    ("name", "metric"),
    [
        ("horizon", "horizon"),
        ("memaudit/impulse/half_life", "half_life"),
        ("impulse.half-life", "half_life"),
        ("Impulse.Horizon.layers.0", "horizon"),
        ("margin/layers.0", "margin"),
        ("precision.bf16.reached", "precision"),
        ("precision.bf16", None),
        ("precision.bf16.else", None),
        ("assumptions.causal", "assumptions"),
        ("findings", None),
        ("findings.warning", "findings"),
        ("findings.bogus", None),
        ("findings.warning.cell", None),
        ("impulse.confidence.cell", None),
        ("coverage.layer", None),
        ("impulse", None),
        ("impulse.margin", None),
        ("nobody.horizon", None),
    ],
)
def test_a_name_by_hand_is_understood(name, metric):
    found = described(name, ("heaviside", "impulse"))
    assert (None if found is None else found.name) == metric


def test_the_words_of_names_are_those_that_the_probes_have():
    from memaudit.numerics.rounding import FORMATS

    assert INNER["FORMAT"] == tuple(FORMATS)
    asked = {"queries": ["impulse"], "probes": ["assumptions"], "level": "quick", "horizon": 32}
    made = memaudit.scan(memaudit.wrap(torch.nn.Tanh(), input_size=1), **asked)
    assert INNER["NAME"] == tuple(item.name for item in made.assumptions)


def test_dots_dashes_and_slashes_are_the_same():
    assert spoken(" memaudit/impulse/half_life ") == spoken("Impulse.half-life")


def test_a_decay_without_a_number_has_none():
    found = report(curve(decay=Decay("persistent", confidence=0.5), horizon=None)).metrics()
    assert found["memaudit/confidence"] == 0.5
    assert "memaudit/rate" not in found


def test_of_parts_that_no_move_broke_the_one_that_was_moved_least_tells_of_the_model():
    first = stability()
    far = first.curves[1]
    short = {name: getattr(far, name)[:2] for name in ("betas", "errors", "random", "ascent")}
    shy = replace(first, curves=(replace(far, **short),), where="b")
    made = replace(first, curves=(far,), others=(shy,), where="a")
    assert report(stability=made).metrics()["memaudit/radius_beyond"] == 0.01


def test_of_half_lives_beyond_all_windows_the_one_that_was_looked_at_least_far_is_named():
    late = power_law("impulse", values=np.where(LAGS < 400, 0.6, 1.0), half_life=None)
    flat = power_law(values=np.ones(len(LAGS)), half_life=None)
    assert whole_holders(report(flat, late))["half_life"] == ("impulse", math.inf)
