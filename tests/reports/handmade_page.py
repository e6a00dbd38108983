"""A report with everything in it, for the HTML page: 24 layers, spectra, moved weights, recall."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from memaudit.memory.result import Status
from memaudit.recall.result import Decoding, Recall
from memaudit.report import Finding, Report
from memaudit.spectrum.result import spectrum
from memaudit.testing.samples import gradients, precision, stability
from tests.handmade import LAGS, assumption, curve, linear_layer, of_kind, power_law, report

LAYERS = 24
MESSAGE = "the memory grows"


def everything(**changes: Any) -> Report:
    """Three queries, every section, findings of every severity."""
    made = report(
        curve("heaviside", floor=1e-9),
        power_law("impulse"),
        of_kind("growing", "reversed", values=np.exp(0.01 * LAGS)),
        subject=report().subject,
        layers={f"layers.{k}": layer(k) for k in range(LAYERS)},
        spectrum=tuple(modes(f"layers.{k}") for k in range(LAYERS)),
        closed_form=(linear_layer("layers.0", note="a note"), linear_layer("layers.1")),
        stability=stability(),
        precision=precision(),
        gradient=gradients(),
        recall=recall(),
        assumptions=(assumption("linear", False), assumption("causal", True)),
        findings=(
            Finding("MA102", "growing-memory", "error", MESSAGE, "an advice", "layers.3"),
            Finding("MA201", "near-boundary", "warning", "near", "another advice"),
            Finding("MA105", "supremum-at-edge", "note", "at the edge", ""),
        ),
    )
    return replace(made, **changes)


def layer(place: int) -> dict[str, Any]:
    """The curves of one layer, deeper ones slower."""
    rate = 0.2 / (1 + place)
    values = np.exp(-rate * LAGS)
    horizon = int(np.log(1000) / rate)
    known = {"horizon": horizon if horizon <= 512 else None, "values": values}
    return {"heaviside": curve("heaviside", **known), "impulse": curve("impulse", **known)}


def modes(name: str) -> Any:
    """Eigenvalues on a spiral, one of them near the boundary."""
    turns = np.linspace(0.0, 6.0, 40)
    eigenvalues = 0.999 * np.exp(-0.1 * turns) * np.exp(1j * turns)
    return spectrum(
        layer=name, cell="lru", parameterization="exp", at="rest", eigenvalues=eigenvalues
    )


def recall() -> Recall:
    """One state, read by a linear readout."""
    values = 0.9 ** np.arange(64)
    read = Decoding("layers.0", "state", 32, 32, 1, values, 0.01, 9.9, 7, 1000, False, Status.OK)
    return Recall((), (read,), 64, "independent numbers", Status.OK)
