"""Reports to try a format or a rule on."""

from __future__ import annotations

from dataclasses import replace

from memaudit.audit import scan
from memaudit.closed_form.result import ClosedForm
from memaudit.memory.result import Curve
from memaudit.report import Finding, Identity, Report
from memaudit.spectrum.result import spectrum
from memaudit.subjects.callables import wrap
from memaudit.testing.models import HORIZON, tanh_recurrence
from memaudit.testing.moved_samples import gradients, moved_renamed, precision, stability


def sample_reports() -> dict[str, Report]:
    """Reports to try a format or a rule on: full, host, deep, moved, partial and empty."""
    full = scan(wrap(tanh_recurrence, input_size=2), horizon=HORIZON, level="quick")
    note = Finding("MA999", "sample", "note", "a message", "an advice", "layer")
    full = replace(full, findings=(*full.findings, note))
    error = {"code": "E_MEMORY", "stage": "impulse", "message": "no room", "hint": "--quick"}
    curve = full.memory["heaviside"]
    cut = replace(curve, lags=curve.lags[:0], values=curve.values[:0], median=curve.median[:0])
    who = Identity("nothing", "wrap", "callable", 0, "float64", "cpu")
    layers = {"encoder": full.memory, "decoder": full.memory}
    modes = spectrum(
        layer="encoder", cell="cell", parameterization="exp", at="rest", eigenvalues=[1.0, 0.5]
    )
    return {
        "full": full,
        "layered": replace(full, subject=replace(full.subject, whole=False), layers=layers),
        "deep": replace(full, layers=layers, spectrum=(modes,), closed_form=(_linear(curve),)),
        "moved": replace(full, stability=stability(), precision=precision(), gradient=gradients()),
        "partial": replace(full, memory={"heaviside": cut}, complete=False, errors=(error,)),
        "empty": Report(subject=who, settings={}),
    }


def renamed(report: Report, name: str) -> Report:
    """The report of a source that calls everything by that name."""
    curves = {name: replace(report.memory["heaviside"], query=name)}
    who = replace(report.subject, source=name, description=name, assumed={name: name})
    return replace(
        report,
        subject=replace(who, notes=(name,)),
        memory=curves,
        layers={name: curves},
        spectrum=tuple(
            replace(s, layer=name, cell=name, parameterization=name, at=name, where=name, note=name)
            for s in report.spectrum
        ),
        **moved_renamed(report, name),
        closed_form=tuple(
            replace(c, layer=name, note=name, fed=name, where=name) for c in report.closed_form
        ),
        assumptions=tuple(replace(a, note=name, where=name) for a in report.assumptions),
        findings=tuple(replace(f, message=name, advice=name, where=name) for f in report.findings),
        errors=({"code": "E_X", "stage": name, "message": name, "hint": name},),
        environment={name: name},
    )


def _linear(curve: Curve) -> ClosedForm:
    """A linear layer whose exact and measured memory is that curve."""
    return ClosedForm(
        layer="encoder",
        lags=curve.lags,
        exact=curve.values,
        measured=curve.values,
        floor=curve.floor,
        measured_floor=curve.floor,
        status=curve.status,
        decay=curve.decay,
        horizon=curve.horizon,
        half_life=curve.half_life,
        measured_status=curve.status,
        measured_decay=curve.decay,
        measured_horizon=curve.horizon,
        measured_half_life=curve.half_life,
        epsilon=curve.epsilon,
        deviation=1e-16,
        tolerance=1e-6,
        fed="an impulse on each of 2 inputs",
        count=len(curve.lags),
        note="a note",
    )
