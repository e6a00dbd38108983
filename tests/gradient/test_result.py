"""What the records of gradients say: metrics, sections, and the rule MA206."""

from __future__ import annotations

from memaudit.gradient.result import GradientResult, gradient_range
from tests.gradient.gradients import form, gradient
from tests.handmade import curve, report


def found(**changes):
    named = {"decay": "layers.0.log_A_real", **changes}
    return list(gradient_range.check(report(curve(), gradient=(gradient(**named),))))


def test_a_largest_ratio_far_above_the_median_is_reported():
    spread = (form("exp", 20.1, median=0.2), form("softplus", 10.0))
    (finding,) = found(reparams=spread)
    assert (
        finding.message == "the largest gradient over weight of exp is 20.1, beside a median of 0.2"
    )
    assert finding.advice == (
        "train it with softplus (`memaudit.retrofit(module, reparam='softplus')`), or keep "
        "gradient descent on layers.0.log_A_real below 0.12"
    )
    assert finding.where == "layers.0"


def test_a_ratio_far_above_that_of_the_recommended_form_is_reported_with_its_place():
    worse = (form("exp", 20.1), form("softplus", 2.0))
    (finding,) = found(reparams=worse, where="encoder")
    assert "where softplus has 2 at the same eigenvalues" in finding.message
    assert finding.where == "encoder: layers.0"


def test_a_layer_that_has_the_recommended_form_gets_the_safe_rate_alone():
    spread = (form("exp", 20.1, median=0.2),)
    (finding,) = found(reparams=spread, recommended="exp")
    assert finding.advice == (
        "keep gradient descent on layers.0.log_A_real below 0.12"
        "; --probe gradient --verbose compares the forms"
    )


def test_a_smaller_rate_that_other_weights_of_the_layer_need_is_given_too():
    spread = (form("exp", 20.1, median=0.2),)
    (finding,) = found(reparams=spread, recommended="exp", own=400.0)
    assert finding.advice == (
        "keep gradient descent on layers.0.log_A_real below 0.12, "
        "and on all its recurrent weights below 0.0025"
        "; --probe gradient --verbose compares the forms"
    )


def test_the_ratio_of_the_model_is_the_largest_of_its_layers():
    items = (gradient(own=8.0), gradient("layers.1", own=9.0), gradient("layers.2", own=None))
    made = report(curve(), gradient=items)
    metrics = {k: v for k, v in made.metrics().items() if "gradient" in k}
    assert metrics == {
        "memaudit/gradient_over_weight": 9.0,
        "memaudit/gradient_over_weight/layers.0": 8.0,
        "memaudit/gradient_over_weight/layers.1": 9.0,
    }
    (whole,) = [m for m in made.numbers() if m.name == "gradient_over_weight" and not m.layer]
    assert (whole.holder, whole.unknown) == ("layers.1", ("layers.2",))


def test_the_tables_have_the_layer_with_both_forms_and_every_form():
    flat = form("clip", 0.1, barred="flat")
    forms = (form("exp", 4.0), form("softplus", 2.0), flat, form("direct", 0.2, stable=False))
    (section,) = GradientResult((gradient(reparams=forms),)).sections()
    layers, others = section.tables
    assert layers.rows == (("layers.0", "exp", 4.0, "softplus", 2.0, 0.125, 8.0),)
    assert [row[1:5] for row in others.rows] == [
        ("exp", "yes", "current", 4.0),
        ("softplus", "yes", "recommended", 2.0),
        ("clip", "flat", None, 0.1),
        ("direct", "unstable", None, 0.2),
    ]
    assert section.line == "reparameterization to train with: softplus"
    (figure,) = section.figures
    assert [s.name for s in figure.series] == ["median", "largest", "scale"]
    assert figure.series[1].x.tolist() == [4.0, 2.0, 0.1, 0.2]
    assert figure.series[1].labels == ("exp", "softplus", "clip", "direct")
