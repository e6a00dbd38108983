"""Prediction and measurement are paired by place and query."""

from __future__ import annotations

import math

import pytest

from tests.handmade import curve, identity, report
from tests.spectrum.evidence import cell, modes


def predictions(made):
    return made["spectrum"].predictions


def test_a_curve_stands_beside_the_slowest_mode_of_all_layers():
    made = report(curve("impulse"), spectrum=(cell(0.5), cell(0.9, -0.95, layer="slow")))
    (found,) = predictions(made)
    assert found.rate == pytest.approx(-math.log(0.95))
    assert found.time_scale == pytest.approx(-1 / math.log(0.95))
    assert (found.layer, found.query, found.measured) == ("slow", "impulse", 0.05)


def test_rates_next_to_the_boundary_keep_their_digits():
    (found,) = predictions(report(curve(), spectrum=(modes(1 - 1e-12),)))
    assert found.rate == pytest.approx(1e-12, rel=1e-3)


def test_a_mode_beyond_the_boundary_has_a_negative_rate_and_no_time_scale():
    (found,) = predictions(report(curve(), spectrum=(modes(1.1),)))
    assert found.rate == pytest.approx(-math.log(1.1))
    assert math.isinf(found.time_scale)


@pytest.mark.parametrize(
    ("names", "layers", "complete"),
    [
        (("a.rnn", "b"), ("a", "b"), True),
        (("a", "b.0.cell"), ("b.0", "a"), True),
        (("a-1", "ab"), ("a",), False),  # sorts before "a." and is no part of it
        (("a!", "a.x", "ab"), ("a",), True),
        (("a",), ("a.x",), False),
        (("a",), ("a", "z"), False),
    ],
)
def test_a_prediction_is_complete_when_every_layer_holds_a_recurrence(names, layers, complete):
    spectra = tuple(cell(0.9, layer=name) for name in names)
    hidden = {layer: {"impulse": curve("impulse")} for layer in layers}
    made = report(curve("impulse"), spectrum=spectra, layers=hidden, subject=identity())
    (found,) = predictions(made)
    assert found.complete is complete
