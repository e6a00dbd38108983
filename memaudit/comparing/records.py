"""What each section of a report tells of every layer, group of weights or number format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from memaudit.comparing.matching import Told
from memaudit.precision.result import Precision
from memaudit.recall.result import Recall
from memaudit.report import Report
from memaudit.stability.result import Stability

if TYPE_CHECKING:
    from memaudit.gradient.result import Gradient
    from memaudit.precision.result import Rounding
    from memaudit.recall.result import Decoding
    from memaudit.spectrum.result import LayerSpectrum as Spectrum
    from memaudit.stability.result import PerturbationCurve

Tell = Callable[[Report], Iterator[Told]]


def _spectrum(report: Report) -> Iterator[Told]:
    for item in report.spectrum:
        yield Told(item.layer, item.where, _modes(item))


def _modes(item: Spectrum) -> dict[str, Any]:
    return {
        "cell": item.cell,
        "parameterization": item.parameterization,
        "at": item.at,
        "modes": item.count,
        "margin": float(item.margin),
        "time_scale": float(item.time_scale),
        "lyapunov": item.lyapunov,
    }


def _stability(report: Report) -> Iterator[Told]:
    if not isinstance(report.stability, Stability):
        return
    for part in (report.stability, *report.stability.others):
        for curve in part.curves:
            yield Told(f"{curve.group}, {curve.ball}", part.where, _radii(part, curve))


def _radii(part: Stability, curve: PerturbationCurve) -> dict[str, Any]:
    return {
        "radius": curve.radius.value,
        "interval": curve.radius.interval,
        "until": curve.radius.criterion,
        "exact": curve.radius.closed_form,
        "tolerance": curve.tolerance_radius.value,
        "norm": curve.norm,
        "draws": part.draws,
        "seeds": part.seeds,
        "steps": part.horizon,
    }


def _precision(report: Report) -> Iterator[Told]:
    if not isinstance(report.precision, Precision):
        return
    for part in (report.precision, *report.precision.others):
        for rounding in part.roundings:
            yield Told(rounding.format, part.where, _rounded(rounding))


def _rounded(rounding: Rounding) -> dict[str, Any]:
    broken = rounding.harms()
    tried = bool(rounding.layers or rounding.memory)
    margins = [m for layer in rounding.layers if (m := layer.margin_after) is not None]
    return {
        "verdict": broken[0].short if broken else "safe" if tried else "not measured",
        "error": rounding.relative,
        "margin": min(margins, default=None),
    }


def _gradient(report: Report) -> Iterator[Told]:
    for item in report.gradient:
        yield Told(item.layer, item.where, _ratios(item))


def _ratios(item: Gradient) -> dict[str, Any]:
    named = {one.name: one for one in item.reparams}
    has, better = named.get(item.current), named.get(item.recommended)
    return {
        "form": item.current,
        "ratio": None if has is None else has.largest,
        "recommended": item.recommended,
        "recommended_ratio": None if better is None else better.largest,
        "all_weights": item.own,
    }


def _recall(report: Report) -> Iterator[Told]:
    if not isinstance(report.recall, Recall):
        return
    for part in (report.recall, *report.recall.others):
        for item in part.decodings:
            yield Told(item.state, part.where, _read(item))


def _read(item: Decoding) -> dict[str, Any]:
    return {
        "capacity": item.capacity,
        "half": item.half,
        "numbers": item.numbers,
        "inputs": item.inputs,
        "lags": len(item.values),
        "status": str(item.status.value),
    }


def _assumptions(report: Report) -> Iterator[Told]:
    for item in report.assumptions:
        # Residuals of what holds are rounding, which no two machines share.
        facts = {"verdict": item.verdict}
        if item.holds is False:
            facts["residual"] = item.residual  # type: ignore[assignment]
        yield Told(item.name, item.where, facts)


#: Sections whose changes are told only where both reports have them.
TOLD: dict[str, Tell] = {
    "spectrum": _spectrum,
    "stability": _stability,
    "precision": _precision,
    "gradient": _gradient,
    "recall": _recall,
    "assumptions": _assumptions,
}
