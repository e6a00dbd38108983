"""Reports built by hand: curves from closed forms, no model behind them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from memaudit.closed_form.result import ClosedFormResult, LayerKernel
from memaudit.gradient.result import GradientResult
from memaudit.interfaces import Status
from memaudit.memory.result import Assumption, AssumptionsResult, Curve, MemoryResult
from memaudit.modes import LayerSpectrum
from memaudit.numerics.verdict import Decay
from memaudit.report import Identity, Report
from memaudit.spectrum.probe import predictions
from memaudit.spectrum.result import Prediction, SpectrumResult

LAGS = np.arange(1, 513)


def curve(query: str = "heaviside", **changes: Any) -> Curve:
    """Memory exp(-t/20): rate 0.05, half-life 13.86, horizon ln(1000)/0.05 = 139."""
    values = changes.pop("values", np.exp(-0.05 * LAGS))
    fields: dict[str, Any] = {
        "query": query,
        "normalization": "max-norm",
        "lags": LAGS[: len(values)],
        "values": values,
        "median": 0.5 * values,
        "floor": 1e-15,
        "status": Status.OK,
        "decay": Decay(
            "exponential", rate=0.05, interval=(0.0499, 0.0501), window=(1, 512), confidence=0.9
        ),
        "horizon": 139,
        "half_life": 13.86,
        "epsilon": 1e-3,
        "probes": 64,
        "exact": False,
        "at_edge": False,
    }
    return Curve(**{**fields, **changes})


def of_kind(kind: str, query: str = "heaviside", **changes: Any) -> Curve:
    """A curve with that verdict."""
    decay = Decay(kind, window=(1, 512), confidence=0.9)
    return curve(query, **{"decay": decay, "horizon": None, "half_life": None, **changes})


def power_law(query: str = "heaviside", **changes: Any) -> Curve:
    """Memory t^-0.5: at lag 512 still 44 times above a thousandth of its maximum."""
    decay = Decay(
        "polynomial", exponent=0.5, interval=(0.49, 0.51), window=(8, 512), confidence=0.9
    )
    fields = {"values": LAGS**-0.5, "decay": decay, "horizon": None, "half_life": 4.0}
    return curve(query, **{**fields, **changes})


def linear_layer(layer: str = "layers.0", **changes: Any) -> LayerKernel:
    """A linear layer with the memory of `curve`, measured as it is."""
    made = curve()
    fields: dict[str, Any] = {
        **{"layer": layer, "lags": made.lags, "exact": made.values, "measured": made.values},
        **{"floor": made.floor, "status": made.status, "decay": made.decay},
        **{"horizon": made.horizon, "half_life": made.half_life, "epsilon": made.epsilon},
        **{"measured_floor": made.floor, "measured_status": made.status},
        **{"measured_decay": made.decay, "measured_horizon": made.horizon},
        **{"measured_half_life": made.half_life, "deviation": 2e-16, "tolerance": 1e-6},
        **{"fed": "an impulse on each of 2 inputs", "count": len(made.lags)},
    }
    return LayerKernel(**{**fields, **changes})


def identity(**changes: Any) -> Identity:
    """A small LSTM that was run as a whole."""
    fields: dict[str, Any] = {
        "source": "demo:lstm",
        "adapter": "rnn",
        "family": "lstm",
        "parameters": 4384,
        "dtype": "float64",
        "device": "cpu",
        "description": "LSTM, 1 layer of 32",
    }
    return Identity(**{**fields, **changes})


def report(*curves: Curve, **changes: Any) -> Report:
    """A complete report with these curves; one with layers is that of a host.

    Results are given by the names of `report.NAME`: spectrum=(...), stability=..., layers={...}.
    """
    whole = "layers" not in changes or changes.pop("whole", False)
    memory = MemoryResult(
        curves=changes.pop("memory", {item.query: item for item in curves}),
        layers=changes.pop("layers", {}),
        requested=tuple(item.query for item in curves),
        whole=whole,
    )
    subject = changes.pop("subject", None) or identity(whole=whole)
    wrapped = {
        "assumptions": AssumptionsResult,
        "spectrum": lambda own: SpectrumResult(own, _predicted(own, memory, subject)),
        "closed_form": ClosedFormResult,
        "gradient": GradientResult,
    }
    named = (
        "assumptions",
        "spectrum",
        "closed_form",
        "stability",
        "precision",
        "gradient",
        "recall",
    )
    results: dict[str, Any] = {"memory": memory}
    for name in named:
        value = changes.pop(name, None)
        if value is not None:
            results[name.replace("_", "-")] = wrapped.get(name, lambda own: own)(value)
    fields: dict[str, Any] = {
        "subject": subject,
        "settings": {"horizon": 512, "seed": 0, "level": "standard"},
        "results": results,
        "timing": {"total": 1.25},
        "environment": {"memaudit": "0.1.0", "python": "3.11.9"},
    }
    return Report(**{**fields, **changes})


def _predicted(
    spectra: tuple[LayerSpectrum, ...], memory: MemoryResult, subject: Identity
) -> tuple[Prediction, ...]:
    """What the spectra say about the curves, as the probe finds it part by part."""
    if subject.whole:
        return tuple(predictions(subject.recurrences, spectra, memory))
    return tuple(
        replace(found, where=part)
        for part, curves in memory.layers.items()
        for found in predictions(
            (), tuple(s for s in spectra if s.where == part), MemoryResult(curves)
        )
    )


def having(made: Report, **values: Any) -> Report:
    """The report with other results, by the names of `report.NAME`."""
    return replace(made, results={**made.results, **report(**values).results})


def assumption(name: str, holds: bool | None, **changes: Any) -> Assumption:
    """A measured property: residual 0.5 against a tolerance of 1e-9."""
    fields: dict[str, Any] = {"residual": 0.5 if holds is False else 1e-12, "tolerance": 1e-9}
    return Assumption(name=name, holds=holds, **{**fields, **changes})
