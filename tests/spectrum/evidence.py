"""Reports with spectra, made by hand, and the findings they must raise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from memaudit.modes import LayerSpectrum as Spectrum
from memaudit.modes import point, spectrum
from memaudit.numerics.verdict import Decay
from tests.handmade import curve, of_kind, report

REST = "rest: zero input, settled after 512 steps"


def modes(*eigenvalues: complex, **changes: Any) -> Spectrum:
    """A layer with these eigenvalues; exp(-0.05) is that of `handmade.curve`."""
    fields = {"layer": "layers.0", "cell": "lru", "parameterization": "exp", "at": "every step"}
    given = {name: changes.pop(name) for name in list(changes) if name in fields}
    points = tuple(point(at, values) for at, values in changes.pop("points", {}).items())
    made = spectrum(**{**fields, **given}, eigenvalues=eigenvalues, points=points)
    return replace(made, **changes)


def cell(*eigenvalues: complex, **changes: Any) -> Spectrum:
    """A nonlinear cell with these eigenvalues at rest."""
    fields = {"cell": "LSTM", "parameterization": "gated", "at": REST}
    return modes(*eigenvalues, **{**fields, **changes})


#: code, severity, a report that must raise it, words of its message
SPECTRAL = [
    (
        "MA201",
        "warning",
        report(curve(), spectrum=(modes(0.99995, 0.99999, -0.5),)),
        "layers.0 (lru, every step) has 1e-05 left to the boundary: 2 of 3 modes within 0.0001, "
        "time scale 1e+05 steps",
    ),
    (
        "MA202",
        "error",
        report(curve(), spectrum=(modes(0.9, 1.01, -1.02),)),
        "has 2 of 3 modes beyond the boundary, the largest of modulus 1.02",
    ),
    (
        "MA203",
        "note",
        report(curve(), spectrum=(modes(0.97, parameterization="direct"),)),
        "layers.0 is parameterized by direct; nothing keeps the modes inside, and the smallest "
        "margin is 0.03",
    ),
    (
        "MA204",
        "warning",
        report(of_kind("persistent", "impulse"), spectrum=(cell(0.9),)),
        f"(impulse: persistent; slowest mode: rate 0.1054, layers.0 at {REST})",
    ),
    (
        "MA204",
        "warning",
        report(curve(), spectrum=(modes(0.5),)),
        # log 2 = 0.6931 beside 0.05
        "the memory falls 14 times as slowly as the spectrum says (heaviside: exponential, "
        "rate 0.05 [0.0499, 0.0501]; slowest mode: rate 0.6931",
    ),
    (
        "MA207",
        "warning",
        report(curve(), spectrum=(cell(0.97, lyapunov=0.12, lyapunov_interval=(0.1, 0.14)),)),
        "nearby states of layers.0 part along a trajectory: Lyapunov exponent 0.12 [0.1, 0.14]",
    ),
]
SLOW = Decay("exponential", rate=0.01, interval=(0.0099, 0.0101), window=(1, 512), confidence=0.9)
