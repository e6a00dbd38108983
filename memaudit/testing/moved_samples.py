"""Records about moved weights, to try a format or a rule on."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from memaudit.gradient.result import Gradient, ReparamGradient
from memaudit.precision.result import Precision, RoundedLayer, RoundedMemory, Rounding
from memaudit.stability.result import PerturbationCurve, Radius, Stability

if TYPE_CHECKING:
    from memaudit.report import Report


def stability() -> Stability:
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
    return Stability(curves, "the model as it is, on 8 inputs", 2.0, 100, 30, 3, "vmap", "a note")


def precision() -> Precision:
    """A format that is safe, and one that moves a mode to the boundary."""
    kept = RoundedLayer("cell", 0.001, 0.001, 0, 1e-6)
    moved = RoundedLayer("cell", 0.001, 0.0, 1, 0.001)
    memory = RoundedMemory("impulse", "exponential", "persistent", 0.05, None, 139, None, 0.5)
    sizes = {"spectral": 0.001, "frobenius": 0.001, "max-abs": 0.001}
    bad = Rounding("bf16", sizes, 0.1, 0.05, (moved,), (memory,), "a note")
    good = Rounding("fp16", dict.fromkeys(sizes, 1e-6), 1e-4, 5e-5, (kept,))
    return Precision((bad, good), ("cell.weight",), "sobolev", "a note")


def gradients() -> tuple[Gradient, ...]:
    """A layer whose largest ratio another form makes smaller."""
    now = ReparamGradient("exp", "continuous", True, 40.0, 0.2, 9.0, 0, 0.01)
    other = ReparamGradient("best", "continuous", True, 2.0, 0.5, 3.0, 1, math.inf)
    said = ("mean square", 41.0, (now, other), "best", "best has the smaller ratio.", "a note")
    return (Gradient("cell", "s4d", "exp", ("cell.weight",), *said),)


def moved_renamed(report: Report, name: str) -> dict[str, Any]:
    """The records about moved weights of a source that calls everything by that name."""
    found: dict[str, Any] = {}
    if isinstance(report.stability, Stability):
        curves = tuple(replace(curve, weights=(name,)) for curve in report.stability.curves)
        found["stability"] = replace(report.stability, curves=curves, note=name, where=name)
    if isinstance(report.precision, Precision):
        roundings = tuple(replace(r, note=name) for r in report.precision.roundings)
        changed = {"roundings": roundings, "weights": (name,), "note": name, "where": name}
        found["precision"] = replace(report.precision, **changed)
    words = {"layer": name, "cell": name, "current": name, "weights": (name,), "loss": name}
    words |= {"reasoning": name, "note": name, "where": name}
    found["gradient"] = tuple(replace(g, **words) for g in report.gradient)
    return found
