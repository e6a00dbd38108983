"""The spectrum in the terminal report: exponents, and prediction beside measurement."""

from __future__ import annotations

import re

from memaudit.reports.terminal import Terminal
from tests.spectrum.evidence import cell, modes
from tests.handmade import curve, identity, of_kind, report


def shown(made) -> str:
    """The spectrum's part of the report, with single blanks."""
    text = Terminal().render(made)
    return re.sub(r"[ \n]+", " ", text.split("Spectrum", 1)[1].split("Findings", 1)[0])


def test_predicted_and_measured_rates_stand_side_by_side():
    text = shown(report(curve("impulse"), spectrum=(cell(0.95123),)))
    assert "impulse 0.05 0.05 [0.0499, 0.0501] layers.0, rest: zero input" in text


def test_without_a_measured_rate_there_is_nothing_beside_it():
    assert "predicted" not in shown(report(of_kind("persistent"), spectrum=(cell(0.9),)))


def test_parts_of_a_host_are_named():
    layers = {"enc": {"impulse": curve("impulse")}, "dec": {"impulse": curve("impulse")}}
    spectra = (cell(0.9, where="enc"), cell(0.8, where="dec"))
    text = shown(report(spectrum=spectra, layers=layers, subject=identity(whole=False)))
    assert "enc impulse 0.1054 0.05" in text
    assert "dec impulse 0.2231 0.05" in text


def test_many_parts_are_cut_and_counted():
    layers = {f"p{n}": {"impulse": curve("impulse")} for n in range(20)}
    spectra = tuple(cell(0.9, where=f"p{n}") for n in range(20))
    text = shown(report(spectrum=spectra, layers=layers, subject=identity(whole=False)))
    assert "... and 8 more rates" in text


def test_an_exponent_is_shown_with_half_its_interval():
    item = cell(0.9, lyapunov=-0.0513, lyapunov_interval=(-0.0533, -0.0493))
    assert "-0.0513 ± 0.002" in shown(report(curve(), spectrum=(item,)))


def test_letters_that_a_console_lacks_are_written_otherwise():
    from rich.console import Console

    item = cell(0.9, lyapunov=-0.05, lyapunov_interval=(-0.06, -0.04))
    made = report(curve(), spectrum=(item,))
    console = Console(width=120, record=True, force_terminal=False)
    with console.capture() as captured:
        console.print(Terminal().renderable(made, width=120, ascii_only=True))
    assert "-0.05 +/- 0.01" in captured.get()


def test_notes_of_spectra_are_told_once_for_neighbours():
    layers = (cell(0.9, note="a note"), cell(0.9, layer="b", note="a note"), modes(0.9, layer="c"))
    assert "layers.0 and 1 more: a note" in shown(report(curve(), spectrum=layers))


def test_time_scales_that_are_all_alike_are_one_number():
    item = modes(0.9, points={"dt 5 %": [1.0], "dt 95 %": [1.0]})
    assert "infinite to infinite" not in shown(report(curve(), spectrum=(item,)))
