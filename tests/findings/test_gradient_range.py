"""MA206: when the gradients of one layer cannot share a learning rate."""

from __future__ import annotations

from memaudit.findings.gradient_range import GradientRange
from memaudit.testing import check_rule
from tests.handmade import curve, report
from tests.reports.gradients import form, gradient


def found(**changes):
    named = {"decay": "layers.0.log_A_real", **changes}
    return list(GradientRange().check(report(curve(), gradient=(gradient(**named),))))


def test_the_rule_keeps_its_laws():
    check_rule(GradientRange())


def test_ratios_of_one_size_are_no_finding():
    assert found() == []
    edge = (form("exp", 20.0, median=0.2), form("softplus", 2.0))
    assert found(reparams=edge) == []


def test_a_largest_ratio_far_above_the_median_is_told():
    spread = (form("exp", 20.1, median=0.2), form("softplus", 10.0))
    (finding,) = found(reparams=spread)
    assert (
        finding.message == "the largest gradient over weight of exp is 20.1, beside a median of 0.2"
    )
    assert finding.advice == (
        "train it with softplus, or keep gradient descent on layers.0.log_A_real below 0.12"
    )
    assert finding.where == "layers.0"


def test_a_ratio_far_above_that_of_the_recommended_form_is_told_with_its_place():
    worse = (form("exp", 20.1), form("softplus", 2.0))
    (finding,) = found(reparams=worse, where="encoder")
    assert "where softplus has 2 at the same eigenvalues" in finding.message
    assert finding.where == "encoder: layers.0"


def test_a_layer_that_has_the_recommended_form_is_told_the_safe_rate_alone():
    spread = (form("exp", 20.1, median=0.2),)
    (finding,) = found(reparams=spread, recommended="exp")
    assert finding.advice == "keep gradient descent on layers.0.log_A_real below 0.12"


def test_a_smaller_rate_that_other_weights_of_the_layer_need_is_told_too():
    spread = (form("exp", 20.1, median=0.2),)
    (finding,) = found(reparams=spread, recommended="exp", own=400.0)
    assert finding.advice == (
        "keep gradient descent on layers.0.log_A_real below 0.12, "
        "and on all its recurrent weights below 0.0025"
    )


def test_a_report_that_names_no_weight_is_told_what_the_rate_is_for():
    (finding,) = found(reparams=(form("exp", 20.1, median=0.2),), recommended="exp", decay="")
    assert finding.advice == "keep gradient descent on the weight of its modes below 0.12"


def test_a_dense_layer_and_an_unmeasured_one_are_no_finding():
    assert found(reparams=(), recommended="") == []
    assert found(current="", reparams=(), own=None) == []
