"""Prediction beside measurement: slowest modes and the rates of curves."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memaudit.numerics.spectra import AT_REST, NOT_SETTLED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from memaudit.results import Curve, Report, Spectrum

#: Queries whose curve ends in silence: from there on a recurrence goes to its rest.
INTO_SILENCE = ("impulse", "reversed")


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """What the spectra of one place say about one curve that was measured there.

    `rate` is the smallest -log |lambda| of all its layers, of which `layer` is the slowest at `at`;
    it is negative beyond the boundary. `complete` is False where something else may hold a memory:
    a layer without a spectrum, a recurrence that never came to rest, or one that reads time
    backwards, to which the oldest input is the newest. `lyapunov` is the largest exponent that any
    of the layers has.
    """

    where: str
    query: str
    curve: Curve
    layer: str
    at: str
    rate: float
    time_scale: float
    lyapunov: float | None
    complete: bool

    @property
    def measured(self) -> float | None:
        """The rate of the curve, None when it is no exponential."""
        return self.curve.decay.rate if self.curve.decay.kind == "exponential" else None


def predictions(report: Report) -> tuple[Prediction, ...]:
    """Every curve on vectors beside the slowest mode of the layers at its place."""
    forward = not any(layer.directions > 1 for layer in report.subject.recurrences)
    found = []
    for where, curves, spectra in _places(report):
        complete = forward and _complete(report, spectra)
        found += [
            _prediction(where, query, curve, spectra, complete=complete)
            for query, curve in curves.items()
            if curve.normalization != "none"
        ]
    return tuple(found)


def slowest(item: Spectrum, *, silent: bool) -> tuple[float, float, str]:
    """Time scale, margin and place of the slowest mode, at rest or at the slowest point.

    After the input has ended (`silent`) a recurrence that was seen to settle goes there. Where the
    step depends on the data, silence inside a model is none at its layers.
    """
    rest = (item.time_scale, item.margin, item.at)
    if silent and item.at.startswith(AT_REST):
        return rest
    points = [(point.time_scale, point.margin, point.at) for point in item.points]
    return min(rest, *points, key=lambda one: one[1]) if points else rest


def _places(
    report: Report,
) -> Iterator[tuple[str, Mapping[str, Curve], tuple[Spectrum, ...]]]:
    """Curves with the spectra behind them: by part of a host, else those of the whole model."""
    apart = report.layers and not report.subject.whole
    groups = report.layers if apart else {"": report.memory}
    parts: dict[str, list[Spectrum]] = {}
    for item in report.spectrum:
        parts.setdefault(item.where, []).append(item)
    for where, curves in groups.items():
        spectra = tuple(parts.get(where, ())) if where else report.spectrum
        if spectra:
            yield where, curves, spectra


def _prediction(
    where: str, query: str, curve: Curve, spectra: tuple[Spectrum, ...], *, complete: bool
) -> Prediction:
    silent = query in INTO_SILENCE
    found = [(slowest(item, silent=silent), item.layer) for item in spectra]
    (time_scale, margin, at), layer = min(found, key=lambda one: one[0][1])
    exponents = [item.lyapunov for item in spectra if item.lyapunov is not None]
    return Prediction(
        where=where,
        query=query,
        curve=curve,
        layer=layer,
        at=at,
        rate=math.inf if margin >= 1.0 else -math.log1p(-margin),
        time_scale=time_scale,
        lyapunov=max(exponents, default=None),
        complete=complete,
    )


def _complete(report: Report, spectra: tuple[Spectrum, ...]) -> bool:
    """Whether every layer that was heard has a spectrum, and one at rest."""
    if any(NOT_SETTLED in item.at for item in spectra):
        return False
    if not report.subject.whole:
        return True
    names = sorted(f"{item.layer}." for item in spectra)
    return all(_inside(names, f"{layer}.") for layer in report.layers)


def _inside(names: list[str], layer: str) -> bool:
    """Whether one of the sorted names stands in the layer, or is the layer: all end in a dot."""
    place = bisect_left(names, layer)
    return place < len(names) and names[place].startswith(layer)
