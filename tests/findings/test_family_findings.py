"""MA208 and MA209 speak about families, and about nothing else."""

from __future__ import annotations

import math

import pytest

from memaudit.findings.crossings_shift_left import CrossingsShiftLeft
from memaudit.findings.judge_family import judge_family
from memaudit.findings.weight_growth import WeightGrowth
from memaudit.testing import check_rule
from tests.handmade import curve, report
from tests.reports.handmade_family import family_report, member, stable, unstable


@pytest.mark.parametrize("rule", [CrossingsShiftLeft(), WeightGrowth()])
def test_a_rule_about_families_keeps_the_laws_and_is_silent_about_one_model(rule):
    check_rule(rule)
    assert list(rule.check(report(curve()))) == []


def test_crossings_that_shift_left_are_a_warning_with_their_places():
    (found,) = CrossingsShiftLeft().check_family(unstable())
    assert (found.code, found.severity) == ("MA208", "warning")
    assert "(m = 2 and 4)" in found.message
    assert "(m = 4 and 8)" in found.message


def test_a_stable_family_is_no_finding():
    assert judge_family(stable()) == ()


def test_an_unstable_family_is_judged_by_the_registered_rules():
    assert [finding.code for finding in judge_family(unstable())] == ["MA208"]


def grown(**last):
    return family_report(member(2, 0.5, 1.0), member(4, 0.2, 1.0), member(8, 0.1, 1.0, **last))


def test_weights_that_grow_fourfold_are_told():
    assert list(WeightGrowth().check_family(grown(weight=4.0))) == []
    (found,) = WeightGrowth().check_family(grown(weight=4.1))
    assert (found.where, "from 1 to 4.1" in found.message) == ("weights", True)


def test_a_margin_that_melts_is_told_where_moves_reach_the_boundary():
    (found,) = WeightGrowth().check_family(grown(margin=0.01, radius=0.008))
    assert (found.where, "from 0.1 to 0.01" in found.message) == ("modes", True)
    assert list(WeightGrowth().check_family(grown(margin=0.01, radius=math.inf))) == []
    assert list(WeightGrowth().check_family(grown(margin=0.03, radius=0.008))) == []


def test_a_model_beyond_the_boundary_is_told_too():
    (found,) = WeightGrowth().check_family(grown(margin=-0.2, radius=0.001))
    assert "from 0.1 to -0.2" in found.message


def test_models_without_modes_have_no_margin_to_lose():
    assert list(WeightGrowth().check_family(grown(margin=None, radius=None))) == []
