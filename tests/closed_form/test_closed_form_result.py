"""What is said of linear layers: numbers, the section, MA116."""

from __future__ import annotations

import math

import numpy as np
import pytest

from memaudit.closed_form.result import ClosedFormResult
from memaudit.interfaces import Status
from memaudit.numerics.verdict import Decay
from memaudit.rules import judge
from tests.handmade import LAGS, linear_layer, report

POWER = Decay("polynomial", exponent=0.5, window=(8, 512))
GROWING = Decay("growing", rate=-3.4, window=(1, 200))
UNMEASURED = {
    "measured": np.zeros(0),
    "measured_status": Status.NOT_MEASURED,
    "measured_decay": Decay("undetermined"),
    "measured_horizon": None,
    "deviation": None,
}


def section(*items):
    (found,) = ClosedFormResult(items).sections()
    return found


def cells(item) -> list[str]:
    (row,) = section(item).tables[0].texts()
    return row


def test_the_deviation_of_the_model_is_the_largest_of_its_layers():
    items = [linear_layer(f"layers.{i}", deviation=d) for i, d in enumerate((2e-16, 3e-9, None))]
    made = report(closed_form=tuple(items))
    numbers = {k: v for k, v in made.metrics().items() if "deviation" in k}
    assert numbers == {
        "memaudit/deviation": 3e-9,
        "memaudit/deviation/layers.0": 2e-16,
        "memaudit/deviation/layers.1": 3e-9,
    }
    (whole,) = [m for m in made.numbers() if m.name == "deviation" and not m.layer]
    assert (whole.holder, whole.unknown, whole.better) == ("layers.1", ("layers.2",), "less")


def test_the_table_keeps_numbers_and_the_figure_both_curves():
    item = linear_layer(measured_horizon=140)
    found = section(item)
    assert found.tables[0].rows == (("layers.0", "exponential, rate 0.05", 139, 140, 2e-16),)
    assert found.line == ("1 linear layer, as the kernel says: largest difference 2e-16 (layers.0)")
    exact, measured = found.figures[0].series
    assert (exact.name, measured.name) == ("layers.0 exact", "layers.0 measured")
    assert np.array_equal(exact.y, item.exact)
    assert np.array_equal(measured.x, item.lags)
    assert found.figures[0].y.log


@pytest.mark.parametrize(
    ("changes", "row"),
    [
        (UNMEASURED, "exponential, rate 0.05|139|-|-"),
        ({"deviation": 0.0}, "exponential, rate 0.05|139|139|0e+00"),
        ({"deviation": math.inf}, "exponential, rate 0.05|139|139|infinite"),
        (
            {"decay": POWER, "horizon": None, "exact": LAGS**-0.5},
            "polynomial 8-512, exponent 0.5|> 512|139|2e-16",
        ),
        ({"decay": GROWING, "horizon": None}, "growing, rate -3.4|> 512|139|2e-16"),
        ({"horizon": None, "floor": 1e-3}, "exponential, rate 0.05|?|139|2e-16"),
    ],
)
def test_what_cannot_be_a_number_is_a_sign(changes, row):
    assert "|".join(cells(linear_layer(**changes))[1:]) == row


def test_a_layer_that_disagrees_stands_in_the_line_and_is_an_error():
    items = (linear_layer(), linear_layer("layers.1", deviation=0.25))
    assert section(*items).line == (
        "2 linear layers, 1 not as the kernel says: largest difference 2e-01 (layers.1)"
    )
    (found,) = [f for f in judge(report(closed_form=items)) if f.code == "MA116"]
    assert (found.name, found.severity) == ("closed-form-disagrees", "error")
    assert found.where == "layers.1"
    assert "differ by 0.25 of the largest memory, where rounding explains 1e-06" in found.message


@pytest.mark.parametrize("deviation", [None, 0.0, 1e-6])
def test_a_layer_within_rounding_or_unmeasured_contradicts_nothing(deviation):
    found = judge(report(closed_form=(linear_layer(deviation=deviation),)))
    assert [f for f in found if f.code == "MA116"] == []


def test_a_layer_whose_answer_is_not_finite_is_reported_with_its_place():
    wrong = linear_layer(deviation=math.inf, where="encoder")
    (found,) = [f for f in judge(report(closed_form=(wrong,))) if f.code == "MA116"]
    assert found.where == "encoder: layers.0"
    assert "not finite where the kernel is" in found.message
