"""Every reparameterization at the eigenvalues that a layer has, under the gradient that it has."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from memaudit.gradient.result import ReparamGradient
from memaudit.numerics.reparameterization import derivative, gradient_scale, has_flat_stretch
from memaudit.reparams.forms import forms

if TYPE_CHECKING:
    from collections.abc import Callable

    from memaudit.contracts import AbstractReparam
    from memaudit.probes.decay_weight import DecayWeight

#: A raw weight below this is zero up to rounding, and a gradient beside it has no ratio.
NOTHING = 1e-12
#: Moves after which a stable form still has stable modes.
FAR = (-8.0, -2.0, 2.0, 8.0)
#: Halvings of an interval: the digits of float64.
HALVINGS = 52
#: Doublings of a move from 1 on, after which a mode counts as one that nothing drives out.
DOUBLINGS = 20


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """One reparameterization: its record, and what the choice among them needs beside it.

    `smallest` is the smallest |w| that it would have, `zeros` the raw weights that would be zero.
    `lively` is False when weights may lose their gradient for good.
    """

    record: ReparamGradient
    smallest: float
    zeros: int
    lively: bool

    @property
    def name(self) -> str:
        """The name of the reparameterization."""
        return self.record.name

    @property
    def eligible(self) -> bool:
        """Whether a training run may be sent there.

        It is stable, reaches every mode, has a gradient everywhere, and no raw weight of zero,
        beside which every step is too large.
        """
        return not self.record.barred


def outcomes(weight: DecayWeight, gradient: Tensor) -> tuple[Outcome, ...]:
    """All forms in the layer's own time; the layer's own first where it is none of them.

    `gradient` is dLoss/dw (n,) of the raw weight. A form f with the same eigenvalues has the
    gradient dLoss/dlam · f'(w), where dLoss/dlam = dLoss/dw / (dlam/dw) is the layer's own. Modes
    whose own dlam/dw is zero tell nothing about it and are left out.
    """
    gradient, told = gradient.to(weight.slope), weight.slope != 0.0
    pull, lam = gradient[told] / weight.slope[told], weight.lam[told]
    found = [_outcome(_matching(weight, form), lam, pull) for form in forms(weight.time)]
    if weight.known is None:
        found.insert(0, _as_stored(weight, gradient, told))
    return tuple(found)


def recommended(found: tuple[Outcome, ...]) -> Outcome | None:
    """The smallest largest ratio among the eligible ones; None when there is none."""
    eligible = [one for one in found if one.eligible]
    return min(eligible, key=lambda one: one.record.largest, default=None)


def _matching(weight: DecayWeight, form: AbstractReparam) -> AbstractReparam:
    """The layer's own form has its own options."""
    known = weight.known
    return known if known is not None and known.name == form.name else form


def _outcome(form: AbstractReparam, lam: Tensor, pull: Tensor) -> Outcome:
    reached = form.contains(lam)
    lam, pull, missed = lam[reached], pull[reached], int((~reached).sum())
    w = form.inverse(lam)
    slopes = derivative(form.forward, w)
    scale = gradient_scale(form.forward, w, time=form.time)
    who = (form.name, form.time, form.stable, missed, not has_flat_stretch(form.forward))
    return _told(who, form.forward, w, pull * slopes, scale)


def _as_stored(weight: DecayWeight, gradient: Tensor, told: Tensor) -> Outcome:
    """The layer's own form where it is none that has a name: weights and gradients as they are."""
    away = 1.0 - weight.lam.abs()
    scale = (weight.slope.abs() / away.square())[told]
    # Of a form without a name it is tried whether far moves of all weights keep the modes.
    kept = (_decays(weight.forward(weight.w + far), weight.time).all() for far in FAR)
    who = (weight.form, weight.time, all(map(bool, kept)), 0, True)
    return _told(who, weight.forward, weight.w, gradient, scale)


def _told(
    who: tuple[str, str, bool, int, bool],
    forward: Callable[[Tensor], Tensor],
    w: Tensor,
    gradient: Tensor,
    scale: Tensor,
) -> Outcome:
    name, time, stable, missed, lively = who
    counted = w.abs() > NOTHING
    sizes, slopes = w.abs()[counted], gradient.abs()[counted]
    ratios, zeros = slopes / sizes, int((~counted).sum())
    record = ReparamGradient(
        name=name,
        time=time,
        stable=stable,
        largest=float(ratios.amax()) if len(ratios) else math.inf,
        median=float(np.median(ratios.cpu().numpy())) if len(ratios) else math.inf,
        bound=float(scale.amax()) if len(scale) else math.inf,
        unreachable=missed,
        learning_rate=learning_rate(forward, w, gradient, time=time),
        barred=_barred(stable=stable, lively=lively, missed=missed, zeros=zeros),
    )
    smallest = float(sizes.amin()) if len(sizes) else 0.0
    return Outcome(record, smallest, zeros, lively)


def _barred(*, stable: bool, lively: bool, missed: int, zeros: int) -> str:
    """The first reason why no training run is sent there."""
    reasons = {"unstable": not stable, "flat": not lively, "reach": missed, "zero weight": zeros}
    return next((reason for reason, holds in reasons.items() if holds), "")


def learning_rate(
    forward: Callable[[Tensor], Tensor], w: Tensor, gradient: Tensor, *, time: str
) -> float:
    """The largest step of gradient descent that is safe for every mode that it moves.

    It leaves every mode stable, and moves no raw weight by more than its own size. Weights of zero
    have no size, but modes that can leave; infinite when no weight has a gradient, or when only
    weights of zero have one and none of their modes can leave.
    """
    moves = gradient != 0.0
    if not bool(moves.any()):
        return math.inf
    ways = torch.where(moves, -gradient.sign(), 0.0)
    limit = torch.where(w.abs() > NOTHING, w.abs(), math.inf)
    low, high = torch.zeros_like(w), _outside(forward, w, ways, limit, time)
    # Towards zero and away from it every f is monotone: what is stable is one interval.
    safe = _decays(forward(w + ways * high), time)
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        good = _decays(forward(w + ways * middle), time)
        low, high = torch.where(good, middle, low), torch.where(good, high, middle)
    reach = torch.where(safe, limit, low)
    return float((reach / gradient.abs())[moves].amin())


def _outside(
    forward: Callable[[Tensor], Tensor], w: Tensor, ways: Tensor, limit: Tensor, time: str
) -> Tensor:
    """How far to look: a weight's own size, or, without one, the first move that is too far."""
    high, sizeless = limit.clamp(max=1.0), limit.isinf()
    high = torch.where(sizeless, high, limit)
    if bool(sizeless.any()):
        for _ in range(DOUBLINGS):
            inside = sizeless & _decays(forward(w + ways * high), time)
            high = torch.where(inside, 2.0 * high, high)
    return high


def _decays(lam: Tensor, time: str) -> Tensor:
    return lam < 0.0 if time == "continuous" else lam.abs() < 1.0
