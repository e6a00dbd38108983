"""Reading the numbers out of a report."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from memaudit.errors import clean
from memaudit.metrics.curves import curve_numbers, whole_numbers
from memaudit.metrics.names import PREFIX
from memaudit.results import SEVERITIES, Precision, Recall, Stability

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from memaudit.results import Report

    Named = tuple[str, float | None]

#: What makes one number of those of all layers.
WHOLE: dict[str, Callable[[Iterable[float]], float]] = {
    **{"margin": min, "time_scale": max, "lyapunov": max, "deviation": max},
    "gradient_over_weight": max,
}
#: Of the numbers of a curve, those that are told of every layer.
LAYERED = ("horizon", "horizon_beyond", "half_life", "rate", "exponent")


def metrics(report: Report) -> dict[str, float]:
    """The numbers as a tracker takes them: finite ones, under the prefix."""
    found = measured(report)
    return {PREFIX + name: value for name, value in found.items() if math.isfinite(value)}


def measured(report: Report) -> dict[str, float]:
    """Every number that was measured, by its name; what lies beyond all reach is infinite."""
    told: dict[str, float] = dict(whole_numbers(report))
    for query, curve in report.memory.items():
        _add(told, ((f"{query}/{name}", value) for name, value in curve_numbers(curve).items()))
    for layer, curves in report.layers.items():
        for query, curve in curves.items():
            numbers = curve_numbers(curve)
            _add(told, ((f"{query}/{name}/{layer}", numbers[name]) for name in LAYERED))
    for name, layers in _layered(report).items():
        known = [value for _, value in layers if value is not None]
        if known:
            told[name] = float(WHOLE[name](known))
        _add(told, ((f"{name}/{layer}", value) for layer, value in layers))
    _add(told, _moved(report))
    _add(told, _judged(report))
    return told


def _layered(report: Report) -> dict[str, list[Named]]:
    spectra, forms, gradients = report.spectrum, report.closed_form, report.gradient
    return {
        "margin": [(_place(s), s.margin) for s in spectra],
        "time_scale": [(_place(s), s.time_scale) for s in spectra],
        "lyapunov": [(_place(s), s.lyapunov) for s in spectra],
        "deviation": [(_place(c), c.deviation) for c in forms],
        "gradient_over_weight": [(_place(g), g.own) for g in gradients],
    }


def _moved(report: Report) -> Iterator[Named]:
    """What moved and rounded weights do; a plugin may have filled these fields with its own."""
    if isinstance(report.stability, Stability):
        first = report.stability.first
        yield "radius", first.radius.value
        yield "tolerance_radius", first.tolerance_radius.value
        if math.isinf(first.radius.value) and len(first.betas):
            yield "radius_beyond", first.betas[-1]
        for curve in report.stability.curves:
            yield f"radius/{curve.group}", curve.radius.value
    if isinstance(report.precision, Precision):
        yield from _rounded(report.precision)
    if isinstance(report.recall, Recall):
        yield "capacity", report.recall.capacity


def _rounded(precision: Precision) -> Iterator[Named]:
    """Every number format, as bad as it is for the part of a host that it is worst for."""
    parts = (precision, *precision.others)
    everything = [rounding for part in parts for rounding in part.roundings]
    for name in dict.fromkeys(rounding.format for rounding in everything):
        same = [rounding for rounding in everything if rounding.format == name]
        errors = [rounding.relative for rounding in same if rounding.relative is not None]
        layers = [layer for rounding in same for layer in rounding.layers]
        yield f"precision/{name}/relative_error", max(errors, default=None)
        yield f"precision/{name}/reached", sum(x.reached for x in layers) if layers else None


def _judged(report: Report) -> Iterator[Named]:
    names = dict.fromkeys(a.name for a in report.assumptions)
    for name in names:
        known = [a.holds for a in report.assumptions if a.name == name and a.holds is not None]
        yield f"assumptions/{name}", float(all(known)) if known else None
    for severity in reversed(SEVERITIES):
        yield f"findings/{severity}", sum(f.severity == severity for f in report.findings)
    yield "coverage", report.subject.coverage
    yield "complete", float(report.complete)
    yield "parameters", report.subject.parameters


def _place(record: Any) -> str:
    """The layer, behind the part of a host that it belongs to."""
    return f"{record.where}.{record.layer}" if record.where else str(record.layer)


def _add(told: dict[str, float], pairs: Iterable[Named]) -> None:
    """Take what is a number; of two layers with one name the second keeps its own."""
    for name, value in pairs:
        if value is None or math.isnan(value):
            continue
        key = safe = clean(name)
        count = 2
        while key in told:
            key, count = f"{safe} ({count})", count + 1
        told[key] = float(value)
