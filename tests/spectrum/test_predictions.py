"""Prediction and measurement are paired by place and query."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import pytest

from memaudit.report import Recurrence
from tests.handmade import curve, identity, of_kind, report
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


def test_a_layer_that_forgets_at_once_has_an_infinite_rate():
    (found,) = predictions(report(curve(), spectrum=(modes(0.0),)))
    assert found.rate == math.inf


def test_a_curve_that_is_no_exponential_has_no_rate():
    (found,) = predictions(report(of_kind("persistent"), spectrum=(modes(0.9),)))
    assert found.measured is None


def test_tokens_are_a_question_of_their_own():
    made = report(curve("context", normalization="none"), spectrum=(modes(0.9),))
    assert predictions(made) == ()


def test_parts_without_a_spectrum_are_left_out():
    layers = {"a": {"impulse": curve("impulse")}, "b": {"impulse": curve("impulse")}}
    spectra = (modes(0.9, where="b"),)
    host = report(spectrum=spectra, layers=layers, subject=identity(whole=False))
    assert [item.where for item in predictions(host)] == ["b"]


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


def test_many_layers_are_paired_in_one_go():
    """Work that grows with the square of the layers takes minutes here."""
    names = [f"layers.{place}" for place in range(20_000)]
    one, curves = cell(0.9), {"impulse": curve("impulse")}
    spectra = tuple(replace(one, layer=f"{n}.rnn") for n in names)
    subject = identity(recurrences=(Recurrence("a", "rnn", 1, 1),) * len(names))
    layers = dict.fromkeys(names, curves)
    start = time.perf_counter()
    (found,) = predictions(
        report(*curves.values(), spectrum=spectra, layers=layers, subject=subject)
    )
    assert time.perf_counter() - start < 10
    assert found.complete
