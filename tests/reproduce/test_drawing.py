"""Whatever a row has measured, its figure can be saved."""

from __future__ import annotations

import math

import numpy as np
import pytest

from examples.reproduce.drawing import LEAST, MOST, drawable, lines, panels, save

ODD = [0.0, 5e-324, 1e-30, 1.0, 1e300, 1.7e308, math.inf, math.nan, -1.0]


@pytest.mark.parametrize("logs", ["", "x", "y", "xy"])
def test_figures_with_infinite_zero_and_huge_values_are_saved(logs, tmp_path):
    figure, (one, other) = panels("odd", "nothing to see")
    lines(one, {"up": (range(1, 10), ODD), "across": (ODD, range(1, 10))}, x="x", y="y", logs=logs)
    lines(other, {"none": ([1.0, 2.0], [math.inf, math.nan])}, x="x", y="y", logs=logs)
    save(figure, tmp_path / "odd.png")
    assert (tmp_path / "odd.png").read_bytes()[:4] == b"\x89PNG"


def test_what_a_logarithmic_axis_cannot_show_is_left_out_or_moved_to_its_ends():
    at, values = drawable(range(1, 10), ODD, "y")
    np.testing.assert_array_equal(at, range(1, 10))
    nothing = math.nan
    shown = [nothing, LEAST, LEAST, 1.0, MOST, MOST, nothing, nothing, nothing]
    np.testing.assert_array_equal(values, shown)


def test_a_plain_axis_keeps_every_finite_value():
    values = drawable(range(1, 4), [-1.0, 0.0, 2.0])[1]
    np.testing.assert_array_equal(values, [-1.0, 0.0, 2.0])
