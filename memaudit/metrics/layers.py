"""The numbers of recurrent layers and of moved weights, and those of the model made of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from memaudit.metrics.number import Number
from memaudit.precision.result import Precision
from memaudit.recall.result import Recall
from memaudit.stability.result import Stability

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from memaudit.precision.result import Rounding
    from memaudit.report import Report
    from memaudit.stability.result import PerturbationCurve

    Named = tuple[str, float | None]

#: What makes one number of those of all layers.
WHOLE: dict[str, Callable[..., tuple[str, float]]] = {
    **{"margin": min, "time_scale": max, "lyapunov": max, "deviation": max},
    "gradient_over_weight": max,
}
OF_A_SPECTRUM = ("margin", "time_scale", "lyapunov")


def recurrent_numbers(report: Report) -> Iterator[Number]:
    """Spectra, closed forms and gradients: of the model, then of every layer."""
    spectra, forms, gradients = report.spectrum, report.closed_form, report.gradient
    layered: dict[str, list[Named]] = {
        "margin": [(_place(s), s.margin) for s in spectra],
        "time_scale": [(_place(s), s.time_scale) for s in spectra],
        "lyapunov": [(_place(s), s.lyapunov) for s in spectra],
        "deviation": [(_place(c), c.deviation) for c in forms],
        "gradient_over_weight": [(_place(g), g.own) for g in gradients],
    }
    lost = _without_spectrum(report)
    for name, layers in layered.items():
        missing = lost if name in OF_A_SPECTRUM else ()
        yield from _joined(name, layers, WHOLE[name], missing)
        yield from (Number(name, value, layer=layer) for layer, value in layers)


def moved_numbers(report: Report) -> Iterator[Number]:
    """What moved and rounded weights do; a plugin may have filled these fields with its own."""
    if isinstance(report.stability, Stability):
        yield from _radii(report.stability)
    if isinstance(report.precision, Precision):
        yield from _rounded(report.precision)
    if isinstance(report.recall, Recall):
        parts = (report.recall, *report.recall.others)
        told = [(f"{p.where}.{d.state}".strip("."), d.capacity) for p in parts for d in p.decodings]
        told += [(p.where or "the model", None) for p in parts if not p.decodings]
        yield from _joined("capacity", told, max)


def known(value: float | None) -> bool:
    """Whether there is a number at all."""
    return value is not None and not math.isnan(value)


def _joined(
    name: str,
    parts: Iterable[Named],
    least: Callable[..., tuple[str, float]],
    lost: Iterable[str] = (),
    *,
    inner: str | None = None,
) -> Iterator[Number]:
    """The least or largest of what was measured, with those that were not; else nothing."""
    pairs = list(parts)
    told = [(place, float(value)) for place, value in pairs if value is not None and known(value)]
    if not told:
        return
    holder, value = least(told, key=lambda pair: pair[1])
    missing = (*(place for place, number in pairs if not known(number)), *lost)
    lower, higher = (missing, ()) if least is min else ((), missing)
    yield Number(name, value, inner=inner, holder=holder, lower=lower, higher=higher)


def _without_spectrum(report: Report) -> tuple[str, ...]:
    """The recurrences of which no eigenvalue was seen."""
    names = [name for s in report.spectrum for name in (s.layer, _place(s))]
    return tuple(
        one.layer
        for one in report.subject.recurrences
        if not any(f"{name}.".startswith(f"{one.layer}.") for name in names)
    )


def _radii(stability: Stability) -> Iterator[Number]:
    """The smallest radius of the parts of a host, and that of every group of weights."""
    parts = (stability, *stability.others)
    for name in ("radius", "tolerance_radius"):
        near, value, beyond = _nearest([part.first for part in parts], name)
        yield Number(name, value, holder=near.group if name == "radius" else "", beyond=beyond)
        if name == "radius" and beyond is not None:
            yield Number("radius_beyond", beyond)
    for curve in stability.curves:
        alike = [c for part in parts for c in part.curves if _same(c, curve)]
        _, value, beyond = _nearest(alike, "radius")
        yield Number("radius", value, inner=curve.group, beyond=beyond)


def _nearest(
    curves: list[PerturbationCurve], name: str
) -> tuple[PerturbationCurve, float, float | None]:
    """The curve with the smallest radius, that, and the largest move where none broke the model.

    Of those that nothing broke it is the one that was moved least: no more is known of them all.
    """

    def rank(curve: PerturbationCurve) -> tuple[float, float]:
        return getattr(curve, name).value, _largest(curve)

    near = min(curves, key=rank)
    value = float(getattr(near, name).value)
    return near, value, _largest(near) if math.isinf(value) and len(near.betas) else None


def _largest(curve: PerturbationCurve) -> float:
    return float(curve.betas[-1]) if len(curve.betas) else math.inf


def _same(one: Any, other: Any) -> bool:
    return (one.group, one.ball) == (other.group, other.ball)


def _rounded(precision: Precision) -> Iterator[Number]:
    """Every number format, as bad as it is for the part of a host that it is worst for."""
    parts = (precision, *precision.others)
    placed = [(part.where or "the model", r) for part in parts for r in part.roundings]
    for name in dict.fromkeys(rounding.format for _, rounding in placed):
        same = [(place, rounding) for place, rounding in placed if rounding.format == name]
        errors = [(place, rounding.relative) for place, rounding in same]
        for number in _joined("precision", errors, max, inner=f"{name}/relative_error"):
            yield Number("precision", number.value, inner=number.inner, higher=number.higher)
        yield from _reached(name, same)


def _reached(name: str, same: list[tuple[str, Rounding]]) -> Iterator[Number]:
    """The modes that a format moves to the edge, and the layers that have lost their modes."""
    layers = [layer for _, rounding in same for layer in rounding.layers]
    if layers:
        lost = [x.layer for x in layers if x.margin_before is None or x.margin_after is None]
        lost += [place for place, rounding in same if not rounding.layers]
        count = float(sum(layer.reached for layer in layers))
        yield Number("precision", count, inner=f"{name}/reached", higher=tuple(lost))


def _place(record: Any) -> str:
    """The layer, behind the part of a host that it belongs to."""
    return f"{record.where}.{record.layer}" if record.where else str(record.layer)
