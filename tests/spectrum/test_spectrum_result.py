"""The rules about spectra fire where they must, and nowhere else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memaudit.numerics.verdict import Decay
from memaudit.report import Recurrence, Report
from memaudit.spectrum.result import (
    SpectrumResult,
    beyond_boundary,
    chaotic,
    direct_parameterization,
    near_boundary,
    spectrum_disagrees,
)
from tests.handmade import curve, identity, of_kind, report
from tests.spectrum.evidence import SLOW, SPECTRAL, cell, modes

RULES = SpectrumResult.rules
BY_CODE = {rule.code: rule for rule in RULES}


def found(rule, made: Report):
    return list(rule.check(made))


@pytest.mark.parametrize(("code", "severity", "evidence", "words"), SPECTRAL)
def test_a_rule_fires_once_on_its_evidence_and_names_the_numbers(code, severity, evidence, words):
    (finding,) = found(BY_CODE[code], evidence)
    assert (finding.code, finding.severity) == (code, severity)
    assert words in finding.message


@pytest.mark.parametrize("rule", RULES)
def test_a_model_whose_spectrum_is_what_was_measured_raises_nothing(rule):
    made = report(curve(), curve("impulse"), spectrum=(modes(0.9512, 0.5), cell(0.9512)))
    assert found(rule, made) == []


@pytest.mark.parametrize(("modulus", "near"), [(0.9998, False), (0.99991, True), (1.0, True)])
def test_the_alarm_is_at_one_part_in_ten_thousand(modulus: float, near: bool):
    assert bool(found(near_boundary, report(spectrum=(modes(modulus),)))) == near


@pytest.mark.parametrize("modulus", [1.0, 1.0 + 1e-9, 1.0 - 1e-9])
def test_one_within_rounding_is_on_the_boundary_and_not_beyond(modulus: float):
    made = report(spectrum=(modes(modulus),))
    assert "is on the boundary" in found(near_boundary, made)[0].message
    assert found(beyond_boundary, made) == []


def test_an_unstable_rest_of_a_nonlinear_cell_is_a_warning():
    (finding,) = found(beyond_boundary, report(spectrum=(cell(1.2, 0.3),)))
    assert finding.severity == "warning"
    assert "does not stay where it rests" in finding.message


def test_places_have_findings_of_their_own_and_the_nearest_layer_speaks():
    layers = [
        modes(0.99999, layer="a", where="encoder"),
        modes(0.999999, layer="b", where="encoder"),
        modes(0.9, layer="c", where="encoder"),
        modes(0.99999, layer="d", where="decoder"),
    ]
    first, second = found(near_boundary, report(spectrum=tuple(layers)))
    assert first.where == "encoder"
    assert first.message.startswith("b (lru")
    assert "1 more recurrences are as near" in first.message
    assert second.where == "decoder"


def test_only_the_state_at_rest_is_judged_against_the_boundary():
    made = report(spectrum=(modes(0.9, points={"dt 5 %": [0.999999], "dt 95 %": [1.5]}),))
    assert found(near_boundary, made) == []
    assert found(beyond_boundary, made) == []


@pytest.mark.parametrize("form", ["exp", "softplus", "sigmoid", "gated", "best"])
def test_forms_that_do_not_reach_the_boundary_are_not_noted(form: str):
    made = report(spectrum=(modes(0.9, parameterization=form),))
    assert found(direct_parameterization, made) == []


@pytest.mark.parametrize("kind", ["persistent", "growing"])
def test_a_curve_that_stays_contradicts_a_spectrum_that_decays(kind: str):
    made = report(of_kind(kind, "impulse"), spectrum=(cell(0.9),))
    assert kind in found(spectrum_disagrees, made)[0].message


def test_a_mode_that_outlasts_the_window_explains_a_plateau():
    # exp(-t / 80) is at 1.7e-3 after 511 steps
    made = report(of_kind("persistent"), spectrum=(modes(0.98758),))
    assert found(spectrum_disagrees, made) == []


@pytest.mark.parametrize(("rate", "told"), [(0.04, True), (0.06, False), (0.5, False)])
def test_only_slower_than_half_the_predicted_rate_is_a_contradiction(rate: float, told: bool):
    decay = Decay("exponential", rate=rate, interval=(rate, rate), window=(1, 512), confidence=0.9)
    made = report(curve("impulse", decay=decay), spectrum=(cell(0.9),))  # rate 0.105
    assert bool(found(spectrum_disagrees, made)) == told


def test_the_factor_is_that_of_the_curve_that_is_slowest_beside_its_own_prediction():
    # Zero input: log 2 beside 0.01. Held input: -log 0.99 beside 0.001.
    rates = {"impulse": 0.01, "heaviside": 0.001}
    curves = [
        curve(
            query,
            decay=Decay(
                "exponential", rate=rate, interval=(rate, rate), window=(1, 512), confidence=0.9
            ),
        )
        for query, rate in rates.items()
    ]
    slow = cell(0.5, points={"constant input +1": [0.99]})
    (both,) = found(spectrum_disagrees, report(*curves, spectrum=(slow,)))
    assert both.message.startswith("the memory falls 69 times as slowly as the spectrum says")
    (held,) = found(spectrum_disagrees, report(curves[1], spectrum=(slow,)))
    assert held.message.startswith("the memory falls 10 times as slowly as the spectrum says")


def test_a_held_input_may_be_as_slow_as_the_slowest_operating_point():
    slow = cell(0.5, points={"constant input +1": [0.99]})
    held = report(curve("heaviside", decay=SLOW), spectrum=(slow,))
    silent = report(curve("impulse", decay=SLOW), spectrum=(slow,))
    assert found(spectrum_disagrees, held) == []
    assert len(found(spectrum_disagrees, silent)) == 1


def test_a_layer_that_follows_its_data_may_be_as_slow_as_its_data_make_it():
    slow = modes(0.5, at="rest, dt at its bias", points={"dt 5 %": [0.99]})
    assert found(spectrum_disagrees, report(curve("impulse", decay=SLOW), spectrum=(slow,))) == []


def test_a_layer_without_a_spectrum_may_remember_by_itself():
    layers = {"layers.0": {"impulse": curve("impulse")}, "layers.1": {"impulse": curve("impulse")}}
    whole = {"layers": layers, "subject": identity(whole=True)}
    mixed = report(curve("impulse", decay=SLOW), spectrum=(cell(0.5),), **whole)
    assert found(spectrum_disagrees, mixed) == []
    both = (cell(0.5), cell(0.5, layer="layers.1.mixer"))
    assert len(found(spectrum_disagrees, report(curve(decay=SLOW), spectrum=both, **whole))) == 1


def test_a_guess_at_the_decay_does_not_disagree_with_the_spectrum():
    for decay in (SLOW, Decay("persistent", confidence=0.9)):
        sure = curve("impulse", decay=decay, horizon=None)
        guess = replace(sure, decay=replace(decay, confidence=0.08))
        assert [
            len(found(spectrum_disagrees, report(c, spectrum=(cell(0.5),)))) for c in (sure, guess)
        ] == [1, 0]


def test_a_model_of_two_directions_is_not_compared():
    two_way = identity(recurrences=(Recurrence("layers.0", "LSTM", 8, 100, directions=2),))
    made = report(of_kind("persistent", "impulse"), spectrum=(cell(0.5),), subject=two_way)
    assert found(spectrum_disagrees, made) == []


def test_parts_of_a_host_are_compared_with_their_own_spectra():
    layers = {"a": {"impulse": curve("impulse", decay=SLOW)}, "b": {"impulse": curve("impulse")}}
    spectra = (cell(0.5, where="a"), cell(0.9512, where="b"))
    host = report(spectrum=spectra, layers=layers, subject=identity(whole=False))
    assert [item.where for item in found(spectrum_disagrees, host)] == ["a"]


@pytest.mark.parametrize("interval", [(-0.1, 0.2), (-0.2, -0.1), (0.0, 0.1)])
def test_an_exponent_that_may_be_zero_is_not_called_chaos(interval):
    item = cell(0.9, lyapunov=sum(interval) / 2, lyapunov_interval=interval)
    assert found(chaotic, report(spectrum=(item,))) == []


def section(*items, curves=(), **changes):
    (found,) = report(*curves, spectrum=items, **changes)["spectrum"].sections()
    return found


def test_the_line_names_the_layer_nearest_to_the_boundary():
    found = section(modes(0.5, layer="a"), modes(0.99, layer="b"))
    assert found.line == "margin 1.00e-02, time scale 99.5 steps (b, nearest to the edge of 2)"


def test_the_table_keeps_numbers_and_drops_columns_without_any():
    plain, rich = modes(0.5), cell(0.9, layer="b", lyapunov=-0.05)
    names = [column.name for column in section(plain).tables[0].columns]
    assert "lyapunov" not in names
    table = section(plain, rich).tables[0]
    assert table.columns[-1].name == "lyapunov"
    assert [row[-1] for row in table.rows] == [None, -0.05]
    assert [row[4] for row in table.rows] == pytest.approx([0.5, 0.1])


def test_predicted_and_measured_rates_stand_side_by_side():
    found = section(cell(0.95123), curves=[curve("impulse")])
    (row,) = found.tables[1].texts()
    assert row == ["impulse", "0.05", "0.05", "[0.0499, 0.0501]", "layers.0, rest: zero input"]
    assert len(section(cell(0.9), curves=[of_kind("persistent")]).tables) == 1
