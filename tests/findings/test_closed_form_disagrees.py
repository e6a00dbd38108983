"""MA116 on what is no disagreement, and on answers that are not finite."""

from __future__ import annotations

import pytest

from memaudit.rules import judge
from tests.handmade import curve, linear_layer, report


@pytest.mark.parametrize("deviation", [None, 0.0, 1e-6])
def test_a_layer_within_rounding_or_unmeasured_contradicts_nothing(deviation):
    assert judge(report(curve(), closed_form=(linear_layer(deviation=deviation),))) == ()


def test_a_layer_whose_answer_is_not_finite_is_told_with_its_place():
    wrong = linear_layer(deviation=float("inf"), where="encoder")
    (found,) = judge(report(curve(), closed_form=(wrong,)))
    assert (found.code, found.where) == ("MA116", "encoder: layers.0")
    assert "not finite where the kernel is" in found.message
