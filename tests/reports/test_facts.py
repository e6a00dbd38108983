"""What the probes found, a line each."""

from __future__ import annotations

from dataclasses import replace

from memaudit.reports.facts import facts
from memaudit.spectrum.result import spectrum
from memaudit.testing import sample_reports
from tests.handmade import assumption, curve, identity, linear_layer, power_law, report
from tests.reports.drawing.test_figure import recall


def modes(layer: str, slowest: float):
    fields = {"cell": "cell", "parameterization": "exp", "at": "rest"}
    return spectrum(layer=layer, eigenvalues=[slowest], **fields)


def test_what_was_not_measured_has_no_line():
    assert facts(report(curve())) == {}
    assert facts(report(curve(), stability={"a": "stranger's"}, recall=3, precision="x")) == {}


def test_the_spectrum_is_that_of_the_layer_nearest_to_the_edge():
    made = report(curve(), spectrum=(modes("a", 0.5), modes("b", 0.99)))
    told = "margin 1.00e-02, time scale 99.5 steps (b, nearest to the edge of 2)"
    assert facts(made)["spectrum"] == told
    made = report(curve(), spectrum=(modes("a", 1.0),))
    assert facts(made)["spectrum"] == "margin 0.00e+00, time scale infinite steps (a)"


def test_the_layer_that_remembers_longest_is_named():
    layers = {"a": {"heaviside": curve()}, "b": {"heaviside": power_law()}}
    made = report(curve(), layers=layers, subject=identity())
    assert facts(made)["layers"] == "2 layers; longest memory: heaviside b"
    host = report(curve(), layers=layers)
    assert facts(host)["layers"].startswith("2 parts, each run by itself; longest")
    assert "layers" not in facts(report(curve(), layers={"a": {"heaviside": curve()}}))


def test_assumptions_that_fail_are_named_and_the_others_counted():
    made = report(
        curve(),
        assumptions=(
            *(assumption("causal", True), assumption("bounded", True)),
            *(assumption("linear", False), assumption("regular", None)),
        ),
    )
    assert facts(made)["assumptions"] == "2 hold; fail: linear; not measured: regular"


def test_closed_forms_and_recall_are_told_in_a_line():
    made = report(curve(), closed_form=(linear_layer(), linear_layer("b")), recall=recall())
    told = {
        "closed form": "2 linear layers, answers 2e-16 from exact",
        "recall": "capacity 7.5 of 8 numbers (rnn, 1 input)",
    }
    assert facts(made) == told
    unmeasured = replace(made, closed_form=(linear_layer(deviation=None),), recall=None)
    assert facts(unmeasured) == {}


def test_moved_and_rounded_weights_are_told_in_a_line_each():
    told = facts(sample_reports()["moved"])
    assert told["stability"] == (
        "radius 0.05 until boundary, 0.05 until tolerance (recurrent weights, spectral ball)"
    )
    assert told["gradient"] == "reparameterization to train with: best"
    assert {"stability", "precision", "gradient"} <= set(told)
    assert not any("\n" in line for line in told.values())


def test_where_no_form_is_better_the_line_does_not_end_in_nothing():
    made = sample_reports()["moved"]
    plain = tuple(replace(item, recommended="") for item in made.gradient)
    told = facts(replace(made, gradient=plain))["gradient"]
    assert told == "reparameterization to train with: none, --verbose says why"
