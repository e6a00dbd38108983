"""The table of linear layers: exact memory beside the measured one, equal neighbours folded."""

from __future__ import annotations

import math

import numpy as np
import pytest

from memaudit.memory.result import Decay, Status
from memaudit.reports.terminal import Terminal
from tests.handmade import LAGS, curve, linear_layer, report

POWER = Decay("polynomial", exponent=0.5, window=(8, 512))
GROWING = Decay("growing", rate=-3.4, window=(1, 200))


def section(*items) -> list[str]:
    """The rows and lines about linear layers, spaces folded."""
    text = Terminal().render(report(curve(), closed_form=items))
    part = text[text.index("Linear layers") : text.index("Findings")]
    return [" ".join(line.split()) for line in part.splitlines()]


def test_a_report_without_linear_layers_has_no_table():
    assert "Linear layers" not in Terminal().render(report(curve()))


def test_a_layer_has_a_row_with_both_horizons_and_the_difference():
    found = section(linear_layer(measured_horizon=140))
    assert found[1] == "linear layer exact memory horizon measured difference"
    assert found[3] == "layers.0 exponential, rate 0.05 139 140 2e-16"


def test_equal_neighbours_share_a_row_and_others_do_not():
    items = [linear_layer(f"layers.{i}") for i in range(24)]
    items[9] = linear_layer("layers.9", horizon=200)
    rows = [row for row in section(*items) if row.startswith("layers")]
    assert [row.split(" exp")[0] for row in rows] == [
        "layers.0 and 8 more",
        "layers.9",
        "layers.10 and 13 more",
    ]


def test_a_layer_that_disagrees_is_not_folded_into_one_that_agrees():
    near = [linear_layer(f"layers.{i}", deviation=d) for i, d in enumerate((9.9e-7, 1.01e-6))]
    assert len([row for row in section(*near) if row.startswith("layers")]) == 2


@pytest.mark.parametrize(
    ("changes", "cells"),
    [
        ({"deviation": None, "measured": np.zeros(0)}, "exponential, rate 0.05 139 139 -"),
        ({"deviation": 0.0}, "exponential, rate 0.05 139 139 0"),
        ({"deviation": math.inf}, "exponential, rate 0.05 139 139 infinite"),
        (
            {"decay": POWER, "horizon": None, "exact": LAGS**-0.5},
            "polynomial 8-512, exponent 0.5 > 512 139 2e-16",
        ),
        ({"decay": GROWING, "horizon": None}, "growing, rate -3.4 > 512 139 2e-16"),
        ({"horizon": None, "floor": 1e-3}, "exponential, rate 0.05 ? 139 2e-16"),
    ],
)
def test_what_cannot_be_a_number_is_a_sign(changes, cells):
    assert section(linear_layer(**changes))[3] == f"layers.0 {cells}"


def test_a_layer_that_was_not_run_has_no_measured_horizon():
    missing = {"measured": np.zeros(0), "measured_status": Status.NOT_MEASURED}
    missing |= {"measured_decay": Decay("undetermined"), "measured_horizon": None}
    found = section(linear_layer(**missing, deviation=None, note="memory ran short"))
    assert found[3] == "layers.0 exponential, rate 0.05 139 - -"
    assert "layers.0: memory ran short" in found


def test_a_hidden_horizon_is_explained_below_the_table():
    assert "?: the floor hides the horizon" in section(linear_layer(horizon=None, floor=1e-3))


def test_equal_notes_are_told_once_and_few_of_many():
    alike = [linear_layer(f"layers.{i}", note="on a grid of 98 lags") for i in range(12)]
    assert "layers.0 and 11 more: on a grid of 98 lags" in section(*alike)
    many = [linear_layer(f"layers.{i}", note=f"note {i}") for i in range(12)]
    found = section(*many)
    assert "... and 8 more notes" in found
    assert "layers.4: note 4" not in found
