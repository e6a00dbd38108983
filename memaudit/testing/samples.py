"""Small models and reports on which the checks try a plugin."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from memaudit import registry
from memaudit.audit import scan
from memaudit.closed_form.result import LayerKernel
from memaudit.gradient.result import LayerGradient, ReparamGradient
from memaudit.memory.result import Curve, MemoryResult
from memaudit.modes import spectrum
from memaudit.precision.result import PrecisionResult, RoundedLayer, RoundedMemory, Rounding
from memaudit.report import Finding, Identity, Report
from memaudit.stability.result import PerturbationCurve, Radius, StabilityResult
from memaudit.subjects.callables import wrap

# -- Small models for the checks.

Model = Callable[[torch.Tensor], torch.Tensor]

#: Lags of the checks: short enough to be quick, long enough for every kernel.
HORIZON = 48


def filtered(kernel: torch.Tensor, *, pooled: bool = False) -> Model:
    """y_t = 3 + sum_s rho(s)·u_{t-s}; the constant must not reach the curve."""

    def respond(u: torch.Tensor) -> torch.Tensor:
        y = u.new_full((*u.shape[:2], 1), 3.0)
        for s, rho in enumerate(kernel[: u.shape[1]]):
            y[:, s:] += u[:, : u.shape[1] - s] @ rho[:, None]
        return y[:, -1] if pooled else y

    return respond


def tanh_recurrence(u: torch.Tensor) -> torch.Tensor:
    """h_t = tanh(0.8 P h_{t-1} + u_t), where P turns the state around; the answer is h_t."""
    state, answers = torch.zeros_like(u[:, 0]), []
    for step in u.unbind(1):
        state = torch.tanh(0.8 * state.flip(-1) + step)
        answers.append(state)
    return torch.stack(answers, 1)


# -- Records about moved weights, to try a format or a rule on.


def stability() -> StabilityResult:
    """Two groups, one of which never breaks the model."""
    betas = np.asarray([0.001, 0.01, 0.1, 1.0])
    direct = Radius("no mode reaches the boundary", 0.05, (0.05, 0.0505), 0.0501, "a formula")
    safe = Radius("the error stays below the size of the answers", math.inf, (math.inf, math.inf))
    curves = tuple(
        PerturbationCurve(
            group=group,
            ball="spectral",
            norm="sobolev",
            betas=betas,
            errors=np.asarray([0.01, 0.1, 1.5, math.inf]),
            random=np.asarray([0.005, 0.05, 1.0, 20.0]),
            ascent=np.asarray([0.01, 0.1, 1.5, math.inf]),
            radius=radius,
            tolerance_radius=replace(direct, criterion="E(beta) <= 2 E(0)", closed_form=None),
            weights=("cell.weight",),
        )
        for group, radius in (("recurrent", direct), ("readout", safe))
    )
    return StabilityResult(
        curves, "the model as it is, on 8 inputs", 2.0, 100, 30, 3, "vmap", "a note"
    )


def precision() -> PrecisionResult:
    """A format that is safe, and one that moves a mode to the boundary."""
    kept = RoundedLayer("cell", 0.001, 0.001, 0, 1e-6)
    moved = RoundedLayer("cell", 0.001, 0.0, 1, 0.001)
    memory = RoundedMemory("impulse", "exponential", "persistent", 0.05, None, 139, None, 0.5)
    sizes = {"spectral": 0.001, "frobenius": 0.001, "max-abs": 0.001}
    bad = Rounding("bf16", sizes, 0.1, 0.05, (moved,), (memory,), "a note")
    good = Rounding("fp16", dict.fromkeys(sizes, 1e-6), 1e-4, 5e-5, (kept,))
    return PrecisionResult((bad, good), ("cell.weight",), "sobolev", "a note")


def gradients() -> tuple[LayerGradient, ...]:
    """A layer whose largest ratio another form makes smaller."""
    now = ReparamGradient("exp", "continuous", True, 40.0, 0.2, 9.0, 0, 0.01)
    other = ReparamGradient("best", "continuous", True, 2.0, 0.5, 3.0, 1, math.inf)
    said = ("mean square", 41.0, (now, other), "best", "best has the smaller ratio.", "a note")
    return (LayerGradient("cell", "s4d", "exp", ("cell.weight",), *said),)


def moved_renamed(report: Report, name: str) -> dict[str, Any]:
    """The records about moved weights of a source that calls everything by that name."""
    found: dict[str, Any] = {}
    if isinstance(report.stability, StabilityResult):
        curves = tuple(replace(curve, weights=(name,)) for curve in report.stability.curves)
        found["stability"] = replace(report.stability, curves=curves, note=name, where=name)
    if isinstance(report.precision, PrecisionResult):
        roundings = tuple(replace(r, note=name) for r in report.precision.roundings)
        changed = {"roundings": roundings, "weights": (name,), "note": name, "where": name}
        found["precision"] = replace(report.precision, **changed)
    words = {"layer": name, "cell": name, "current": name, "weights": (name,), "loss": name}
    words |= {"reasoning": name, "note": name, "where": name}
    found["gradient"] = tuple(replace(g, **words) for g in report.gradient)
    return found


# -- Reports to try a format or a rule on.


def sample_reports() -> dict[str, Report]:
    """Reports to try a format or a rule on: full, host, deep, moved, partial and empty."""
    subject = wrap(tanh_recurrence, input_size=2)
    full = scan(subject, horizon=HORIZON, level="quick", sequences=256)
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
        "layered": replace(
            having(full, layers=layers, whole=False), subject=replace(full.subject, whole=False)
        ),
        "deep": having(full, layers=layers, spectrum=(modes,), closed_form=(_linear(curve),)),
        "moved": having(full, stability=stability(), precision=precision(), gradient=gradients()),
        "partial": replace(
            having(full, memory={"heaviside": cut}), complete=False, errors=(error,)
        ),
        "empty": Report(subject=who, settings={}),
    }


def having(report: Report, **values: Any) -> Report:
    """The report with other results, by the names of `report.NAME`; `whole` False is a host's."""
    results = dict(report.results)
    fields = {"memory": "curves", "layers": "layers", "whole": "whole"}
    changed = {fields[name]: values.pop(name) for name in fields if name in values}
    if changed:
        queries = tuple(changed.get("curves", report.memory))
        old: Any = results.get("memory", MemoryResult({}))
        results["memory"] = replace(old, **changed, requested=queries)
    for name, value in values.items():
        kind = registry.load(registry.find("probes", name.replace("_", "-"))).result
        results[name.replace("_", "-")] = kind(value) if kind.attribute else value
    return replace(report, results=results)


def renamed(report: Report, name: str) -> Report:
    """The report of a source that calls everything by that name."""
    curves = {name: replace(report.memory["heaviside"], query=name)}
    who = replace(report.subject, source=name, description=name, assumed={name: name})
    made = having(
        report,
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
    )
    return replace(
        made,
        subject=replace(who, notes=(name,)),
        findings=tuple(replace(f, message=name, advice=name, where=name) for f in report.findings),
        errors=({"code": "E_X", "stage": name, "message": name, "hint": name},),
        environment={name: name},
    )


def _linear(curve: Curve) -> LayerKernel:
    """A linear layer whose exact and measured memory is that curve."""
    return LayerKernel(
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
