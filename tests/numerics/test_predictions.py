"""Prediction and measurement are paired by place and query."""

from __future__ import annotations

import math

import pytest

from memaudit.numerics.predictions import predictions
from tests.findings.spectral_evidence import cell, modes
from tests.reports.handmade import curve, identity, of_kind, report


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


def test_the_largest_exponent_of_all_layers_is_named():
    layers = (cell(0.9, lyapunov=-0.2), cell(0.9, layer="b", lyapunov=-0.1), cell(0.9, layer="c"))
    (found,) = predictions(report(curve(), spectrum=layers))
    assert found.lyapunov == -0.1


def test_tokens_are_a_question_of_their_own():
    made = report(curve("context", normalization="none"), spectrum=(modes(0.9),))
    assert predictions(made) == ()


def test_parts_without_a_spectrum_are_left_out():
    layers = {"a": {"impulse": curve("impulse")}, "b": {"impulse": curve("impulse")}}
    spectra = (modes(0.9, where="b"),)
    host = report(spectrum=spectra, layers=layers, subject=identity(whole=False))
    assert [item.where for item in predictions(host)] == ["b"]
