"""Spectra: margin, time scale, and their way through strict JSON."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from memaudit.modes import MOST_STORED, point, spectrum
from memaudit.modes import LayerSpectrum as Spectrum
from memaudit.report import Report
from tests.handmade import curve, report


def made(eigenvalues, **changes) -> Spectrum:
    fields = {"layer": "layers.0", "cell": "lru", "parameterization": "exp", "at": "rest"}
    return spectrum(**{**fields, "eigenvalues": eigenvalues, **changes})


@pytest.mark.parametrize(("modulus", "angle"), [(0.9, 0.0), (0.999, 2.1), (0.5, math.pi)])
def test_the_slowest_mode_decides_about_margin_and_time_scale(modulus, angle):
    found = made([0.1, modulus * complex(math.cos(angle), math.sin(angle)), -0.3])
    assert found.margin == pytest.approx(1 - modulus, rel=1e-12)
    assert found.time_scale == pytest.approx(-1 / math.log(modulus), rel=1e-12)
    assert found.count == 3


def test_a_mode_on_the_boundary_or_beyond_never_decays():
    assert math.isinf(made([1.0, 0.5]).time_scale)
    assert made([1.0, 0.5]).margin == 0.0
    assert made([1.25]).margin == -0.25


def test_a_state_that_forgets_at_once_has_no_time_scale():
    assert made([0.0]).time_scale == 0.0


def test_infinity_is_a_word_in_json_and_comes_back():
    found = made([1.0], points=(point("dt 50 %", [0.5]),))
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert data["time_scale"] == "infinite"
    again = Spectrum.from_dict(data)
    assert again == found
    assert math.isinf(again.time_scale)
    assert again.points[0].time_scale == pytest.approx(1 / math.log(2))


def test_a_report_keeps_the_slowest_of_many_modes_and_their_number():
    many = np.linspace(0.0, 0.999, 4 * MOST_STORED)
    found = report(curve(), spectrum=(made(many),))
    again = Report.from_dict(found.to_dict())
    assert again == found
    kept = again.spectrum[0]
    assert kept.count == len(many)
    assert np.array_equal(kept.eigenvalues.real, many[-MOST_STORED:])
    assert kept.margin == pytest.approx(0.001)
