"""What the records of E(beta) say: metrics and sections."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from memaudit.stability.result import StabilityResult
from memaudit.testing.samples import stability
from tests.handmade import report


def metrics(made: StabilityResult) -> dict[str, float]:
    found = report(stability=made).metrics()
    return {key.removeprefix("memaudit/"): v for key, v in found.items() if "radius" in key}


def test_radii_of_the_model_and_of_every_group():
    assert metrics(stability()) == {
        "radius": 0.05,
        "tolerance_radius": 0.05,
        "radius/recurrent": 0.05,
    }
    numbers = {m.name: m for m in report(stability=stability()).numbers()}
    assert numbers["radius"].holder == "recurrent"
    assert (numbers["radius/readout"].value, numbers["radius/readout"].beyond) == (math.inf, 1.0)


def test_where_no_move_breaks_the_model_the_largest_move_is_named():
    """Of several parts the one that was moved least: no more is known of them all."""
    first = stability()
    far = first.curves[1]
    short = {name: getattr(far, name)[:2] for name in ("betas", "errors", "random", "ascent")}
    near = replace(first, curves=(replace(far, **short),), where="b")
    made = replace(first, curves=(far,), others=(near,), where="a")
    assert metrics(made) == {"radius_beyond": 0.01, "tolerance_radius": 0.05}


def test_the_radius_of_a_host_is_that_of_its_part_nearest_to_the_edge():
    far = stability()
    curve = far.curves[0]
    near = replace(far, curves=(replace(curve, radius=replace(curve.radius, value=0.01)),))
    made = StabilityResult.joined({"encoder": far, "decoder": near})
    assert (made.where, made.radius) == ("decoder", 0.01)
    assert metrics(made)["radius/recurrent"] == 0.01
    (section,) = made.sections()
    assert [row[:2] for row in section.tables[0].rows] == [
        ("decoder", "recurrent"),
        ("encoder", "recurrent"),
        ("encoder", "readout"),
    ]


def test_the_table_has_radii_and_errors_as_a_share_of_the_answers():
    (section,) = stability().sections()
    (table,) = section.tables
    names = [column.name for column in table.columns]
    assert names[:2] == ["weights", "ball"]
    assert names[-3:] == ["E(0.01)", "E(0.1)", "E(1)"]
    seeds = "0.05 to 0.0505"
    assert table.rows == (
        ("recurrent", "spectral", 0.05, seeds, "boundary", 0.0501, 0.05, 0.05, 0.75, math.inf),
        ("readout", "spectral", math.inf, None, "error", None, 0.05, 0.05, 0.75, math.inf),
    )
    assert section.line == (
        "radius 0.05 until boundary, 0.05 until tolerance (recurrent weights, spectral ball)"
    )


def test_the_figure_has_a_line_a_group_and_marks_for_radii_and_answers():
    (section,) = stability().sections()
    (figure,) = section.figures
    assert figure.x.log
    assert figure.y.log
    assert [line.name for line in figure.series] == ["recurrent", "readout"]
    assert figure.series[0].x.tolist() == [0.001, 0.01, 0.1]  # the infinite error is left out
    assert figure.series[0].y.tolist() == [0.01, 0.1, 1.5]
    assert [(m.label, m.x, m.y) for m in figure.marks] == [
        ("recurrent radius", 0.05, None),
        ("size of the answers", None, 2.0),
    ]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"errors": np.ones(3)}, "differ in count"),
        ({"betas": np.asarray([0.1, 0.01, 0.2, 0.3])}, "no rising sizes"),
    ],
)
def test_a_curve_that_is_none_is_refused(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        replace(stability().curves[0], **changes)
