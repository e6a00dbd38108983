"""Gradients of a loss on the recurrent weights, and those of every other reparameterization.

The loss is a synthetic one or that of the caller. Every reparameterization is looked at with the
eigenvalues that a layer has, under the gradient that it has, and one of them is recommended.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from memaudit.errors import ArgumentError, clean
from memaudit.gradient.result import LayerGradient, ReparamGradient
from memaudit.numerics.reparameterization import derivative, gradient_scale, has_flat_stretch
from memaudit.numerics.signals import seeded
from memaudit.reparams import forms
from memaudit.subjects.decays import find_decay_weight
from memaudit.subjects.modules import checked_inputs
from memaudit.subjects.moves import perturbing_inputs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from memaudit.interfaces import AbstractPerturbable, AbstractReparam, AbstractSubject, Setting
    from memaudit.subjects.decays import DecayWeight

    Loss = Callable[[Tensor, Any], Tensor]


# One record a layer

#: What a layer is called whose weights belong to the model as a whole.
WHOLE = "model"
DENSE = "no raw weight stands for one mode each: other forms need an eigenvalue form of the layer"
GATED = "its modes move with the data and follow no known rate: no other form has the same ones"
UNBOUNDED = "the gradient is not finite"
NO_RECURRENCE = "no recurrent weights were found"


@dataclass(frozen=True, slots=True)
class _About:
    """The cell of a layer, the name of its form, and whether its modes move with the data."""

    cell: str = ""
    form: str = ""
    at_rest: bool = False


def measured(
    subject: AbstractSubject, copies: AbstractPerturbable, task: Task
) -> tuple[LayerGradient, ...]:
    """One record per recurrent layer."""
    names = [name for name, role in copies.roles.items() if role.group == "recurrent"]
    if not names:
        return (unmeasured(NO_RECURRENCE),)
    slopes, about = gradients(copies, names, task), _about(subject)
    layers = dict.fromkeys(copies.roles[name].layer for name in names)
    return tuple(_record(copies, layer, slopes, task, _known(about, layer)) for layer in layers)


def gradients(copies: AbstractPerturbable, names: list[str], task: Task) -> dict[str, Tensor]:
    """dLoss/dw of every named weight, as large as it, in float64 on the CPU."""
    with torch.enable_grad():
        moved = {n: copies.weights[n].detach().clone()[None].requires_grad_() for n in names}
        loss = task.value(copies.respond(task.inputs, moved)[0].double())
        if not loss.requires_grad:
            raise ArgumentError(
                "the loss does not depend on the answers", hint="give another gradient.loss_fn"
            )
        found = torch.autograd.grad(loss, list(moved.values()), allow_unused=True)
    return {
        name: _wide(torch.zeros_like(moved[name]) if slope is None else slope)[0]
        for name, slope in zip(names, found, strict=True)
    }


def unmeasured(note: str) -> LayerGradient:
    """The record of a model about which nothing is known, with the reason."""
    return LayerGradient(
        layer=WHOLE,
        cell="",
        current="",
        weights=(),
        loss="",
        own=None,
        reparams=(),
        recommended="",
        reasoning="",
        note=note,
    )


def _record(
    copies: AbstractPerturbable,
    layer: str,
    slopes: Mapping[str, Tensor],
    task: Task,
    known: _About,
) -> LayerGradient:
    names = tuple(name for name in slopes if copies.roles[name].layer == layer)
    finite = all(bool(slopes[name].isfinite().all()) for name in names)
    weight = find_decay_weight(copies, layer, named=known.form) if finite else None
    found, notes = (), [DENSE if finite else UNBOUNDED]
    if weight is not None and known.at_rest and weight.time == "discrete":
        weight, notes = None, [GATED]
    if weight is not None:
        slope = slopes[weight.name].flatten()
        found = outcomes(weight, slope.real if slope.is_complex() else slope)
        notes = list(_notes(weight))
    chosen = recommended(found)
    own = _largest(copies, slopes, names) if finite else None
    return LayerGradient(
        layer=layer or WHOLE,
        cell=known.cell,
        current=known.form if weight is None else weight.form,
        weights=names,
        loss=task.description,
        own=own,
        reparams=tuple(one.record for one in found),
        recommended="" if chosen is None else chosen.name,
        reasoning="" if weight is None else _reasons(copies, slopes, names, weight, found),
        note="; ".join(notes),
        decay="" if weight is None else weight.name,
    )


def _reasons(
    copies: AbstractPerturbable,
    slopes: Mapping[str, Tensor],
    names: tuple[str, ...],
    weight: DecayWeight,
    found: tuple[Outcome, ...],
) -> str:
    """Another form changes the ratio of the decay weight, and leaves those of the others."""
    chosen = recommended(found)
    kept = chosen is None or chosen.name == weight.form
    counted = names if kept else tuple(name for name in names if name != weight.name)
    return reasoning(weight, found, chosen, rest=_largest(copies, slopes, counted))


def _notes(weight: DecayWeight) -> Iterator[str]:
    silent, zeros = int((weight.slope == 0.0).sum()), int((weight.w.abs() <= NOTHING).sum())
    if silent:
        yield f"{silent} of {len(weight.w)} modes do not follow their weight and are left out"
    if zeros:
        yield f"{zeros} of {len(weight.w)} raw weights are zero and have no ratio"


def _largest(
    copies: AbstractPerturbable, slopes: Mapping[str, Tensor], names: tuple[str, ...]
) -> float:
    """The largest |dLoss/dw| / |w|; weights of zero have none."""
    largest = 0.0
    for name in names:
        sizes = _wide(copies.weights[name]).abs()
        counted = sizes > NOTHING
        ratios = slopes[name].abs()[counted] / sizes[counted]
        largest = max(largest, float(ratios.amax()) if ratios.numel() else 0.0)
    return largest


def _wide(value: Tensor) -> Tensor:
    wide = torch.complex128 if value.is_complex() else torch.float64
    return value.detach().to("cpu", wide)


def _about(subject: AbstractSubject) -> dict[str, _About]:
    """What spectra and dynamics tell about every layer."""
    found: dict[str, _About] = {}
    for dynamics in subject.dynamics().values():
        for layer, block in dynamics.blocks.items():
            found[layer] = _About(block.cell, block.parameterization)
    for item in subject.spectra():
        at_rest = item.at.startswith("rest")
        found[item.layer] = _About(item.cell, item.parameterization, at_rest)
    return found


def _known(about: Mapping[str, _About], layer: str) -> _About:
    if layer in about:
        return about[layer]
    # The weights of the whole model belong to its only recurrence.
    return next(iter(about.values())) if not layer and len(about) == 1 else _About()


# The loss

#: The memory of the synthetic target is (t + 1) to the power of minus this: StableSSM, Fig. 3.
EXPONENT = 1.1
SYNTHETIC = f"mean square against the inputs remembered as (t+1)^-{EXPONENT}"
SQUARES, OWN = "mean square on the given batch", "the given loss on the given batch"


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """What is fed, the loss of the answers to it, and what the loss is called."""

    inputs: Tensor
    value: Callable[[Tensor], Tensor]
    description: str


def synthetic_task(subject: AbstractSubject, setting: Setting, *, steps: int) -> Task:
    """The mean square of the answers against a target with long memory, which no mode has.

    The target is a projection of the inputs, averaged with the weights (t+1)^-1.1, on top of the
    answer to zero input; it is as large as the answers are beside that one.
    """
    inputs = perturbing_inputs(subject, setting, steps=steps)
    with torch.no_grad():
        own = subject.respond(inputs).double()
        rest = subject.respond(torch.zeros_like(inputs[:1])).double()
    flips = torch.randint(2, (inputs.shape[-1], 1), generator=seeded(setting.seed))
    signs = (2.0 * flips.double() - 1.0).to(inputs.device)
    remembered = _remembered(inputs.double() @ signs)
    target = remembered[:, -1] if subject.pooled else remembered
    size = (own - rest).square().mean().sqrt() / target.square().mean().sqrt().clamp(min=1e-30)
    return Task(inputs, lambda answers: (answers - rest - size * target).square().mean(), SYNTHETIC)


def given_task(subject: AbstractSubject, batch: tuple[Tensor, Any], loss_fn: Loss | None) -> Task:
    """The caller's batch, with the caller's loss or the mean square."""
    inputs, targets = batch
    if isinstance(inputs, Tensor) and not inputs.is_floating_point():
        raise ArgumentError(
            f"the inputs of gradient.batch are of {inputs.dtype}",
            hint="give floats (B, T, D); token ids go through the model's embedding first",
        )
    fed = checked_inputs(subject, inputs)
    if loss_fn is not None:
        return Task(fed, lambda answers: _scalar(loss_fn(answers, targets)), OWN)
    if not isinstance(targets, Tensor):
        raise ArgumentError(
            f"the targets of gradient.batch are {type(targets).__name__}, not a tensor",
            hint="give a tensor, or a loss_fn that takes them",
        )
    wanted = targets.to(fed.device, torch.float64)
    return Task(fed, lambda answers: _squares(answers, wanted), SQUARES)


def _remembered(u: Tensor) -> Tensor:
    """The sum over s of (s+1)^-1.1 u(t-s), for u (B,T,1)."""
    steps = u.shape[1]
    later = torch.arange(steps, device=u.device)
    lag = later[:, None] - later
    kernel = (lag.clamp(min=0) + 1.0).to(u.dtype).pow(-EXPONENT).tril()
    return kernel @ u


def _squares(answers: Tensor, targets: Tensor) -> Tensor:
    if answers.shape != targets.shape:
        raise ArgumentError(
            f"the targets of gradient.batch are {tuple(targets.shape)}, "
            f"the answers {tuple(answers.shape)}",
            hint="give a loss_fn, or targets of the shape of the answers",
        )
    return (answers - targets).square().mean()


def _scalar(value: Any) -> Tensor:
    if not isinstance(value, Tensor) or value.numel() != 1 or not value.is_floating_point():
        raise ArgumentError(
            "gradient.loss_fn does not give one number", hint="return a tensor with one float"
        )
    return value.reshape(()).double()


# Every reparameterization

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
    `has_gradient` is False when weights may lose their gradient for good. `constants` are those
    that were chosen for the modes, empty where the form has none or those of the layer.
    """

    record: ReparamGradient
    smallest: float
    zeros: int
    has_gradient: bool
    constants: str = ""

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
    gradient, follows = gradient.to(weight.slope), weight.slope != 0.0
    upstream, lam = gradient[follows] / weight.slope[follows], weight.lam[follows]
    found = []
    for form in forms(weight.time):
        chosen = as_retrofitted(weight, form)
        constants = "" if chosen in (form, weight.known) else constants_text(chosen)
        found.append(replace(_outcome(chosen, lam, upstream), constants=constants))
    if weight.known is None:
        found.insert(0, _as_stored(weight, gradient, follows))
    return tuple(found)


def recommended(found: tuple[Outcome, ...]) -> Outcome | None:
    """The smallest largest ratio among the eligible ones; None when there is none."""
    eligible = [one for one in found if one.eligible]
    return min(eligible, key=lambda one: one.record.largest, default=None)


def as_retrofitted(weight: DecayWeight, form: AbstractReparam) -> AbstractReparam:
    """The layer's own form as it is stored, any other with the constants of a retrofit."""
    known = weight.known
    if known is not None and known.name == form.name:
        return known
    return form.fitted(weight.lam[_decays(weight.lam, weight.time)])


def constants_text(form: AbstractReparam) -> str:
    """The constants of a form, as in `a = 0.125, b = 0.0625`."""
    named = ((f.name, getattr(form, f.name)) for f in fields(form) if f.name != "time")
    return ", ".join(f"{clean(name)} = {clean(value)}" for name, value in named)


def _outcome(form: AbstractReparam, lam: Tensor, upstream: Tensor) -> Outcome:
    reached = form.contains(lam)
    w = form.inverse(lam[reached])
    return _compared(
        form.name,
        form.time,
        form.forward,
        w,
        gradient=upstream[reached] * derivative(form.forward, w),
        scale=gradient_scale(form.forward, w, time=form.time),
        stable=form.stable,
        unreachable=int((~reached).sum()),
        has_gradient=not has_flat_stretch(form.forward),
    )


def _as_stored(weight: DecayWeight, gradient: Tensor, follows: Tensor) -> Outcome:
    """The layer's own form where it is none that has a name: weights and gradients as they are."""
    away = 1.0 - weight.lam.abs()
    # Of a form without a name it is tried whether far moves of all weights keep the modes.
    kept = (_decays(weight.forward(weight.w + far), weight.time).all() for far in FAR)
    return _compared(
        weight.form,
        weight.time,
        weight.forward,
        weight.w,
        gradient=gradient,
        scale=(weight.slope.abs() / away.square())[follows],
        stable=all(map(bool, kept)),
        unreachable=0,
        has_gradient=True,
    )


def _compared(
    name: str,
    time: str,
    forward: Callable[[Tensor], Tensor],
    w: Tensor,
    *,
    gradient: Tensor,
    scale: Tensor,
    stable: bool,
    unreachable: int,
    has_gradient: bool,
) -> Outcome:
    """One form by its raw weights, their gradients, and the scale of those."""
    counted = w.abs() > NOTHING
    sizes, slopes = w.abs()[counted], gradient.abs()[counted]
    ratios, zeros = slopes / sizes, int((~counted).sum())
    # The first reason why no training run is sent there.
    reasons = {
        "unstable": not stable,
        "flat": not has_gradient,
        "reach": unreachable,
        "zero weight": zeros,
    }
    record = ReparamGradient(
        name=name,
        time=time,
        stable=stable,
        largest=float(ratios.amax()) if len(ratios) else math.inf,
        median=float(np.median(ratios.cpu().numpy())) if len(ratios) else math.inf,
        bound=float(scale.amax()) if len(scale) else math.inf,
        unreachable=unreachable,
        learning_rate=learning_rate(forward, w, gradient, time=time),
        barred=next((reason for reason, holds in reasons.items() if holds), ""),
    )
    smallest = float(sizes.amin()) if len(sizes) else 0.0
    return Outcome(record, smallest, zeros, has_gradient)


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


# Why one is recommended

#: By so much a rate has to be smaller than another to be worth a sentence.
APART = 0.99


def reasoning(
    weight: DecayWeight,
    found: tuple[Outcome, ...],
    chosen: Outcome | None,
    *,
    rest: float,
) -> str:
    """Which rate AdamW may have, what the layer has, what it should have and why.

    Last comes the rate of plain gradient descent: that of the decay weight, and, where `rest`, the
    largest |dLoss/dw| / |w| of the layer's recurrent weights, asks for a smaller one, that too.
    """
    modes = len(weight.w)
    current = next((one for one in found if one.name == weight.form), None)
    sentences = [*_adamw(weight, current, chosen), *([] if current is None else [_has(current)])]
    if chosen is None:
        missed = ", ".join(f"{one.name} {one.record.unreachable}" for one in found if _misses(one))
        sentences.append(
            f"No stable form with a gradient everywhere reaches all {modes} modes"
            + (f" (out of reach: {missed})." if missed else ".")
        )
    else:
        sentences += [
            _chosen(chosen, current, modes),
            *_passed_over(chosen, found),
            *_constants(found),
        ]
    safe = chosen or current
    if safe is not None:
        sentences += [_rate(weight, safe), *_rest(safe, rest)]
    return " ".join(sentences)


def _has(current: Outcome) -> str:
    record = current.record
    return (
        f"{clean(current.name)}, which the layer has, moves a raw weight by up to "
        f"{_number(record.largest)} of its size per unit of learning rate "
        f"(median {_number(record.median)})."
    )


def _chosen(chosen: Outcome, current: Outcome | None, modes: int) -> str:
    reach = f"among the stable forms that reach all {modes} modes"
    if current is not None and chosen.name == current.name:
        return f"That is the smallest largest ratio {reach}: keep {chosen.name}."
    return (
        f"{chosen.name} has the smallest largest ratio {reach}, "
        f"{_number(chosen.record.largest)} (median {_number(chosen.record.median)})."
    )


def _passed_over(chosen: Outcome, found: tuple[Outcome, ...]) -> list[str]:
    """Why a stable form with a smaller ratio is not the one."""
    smaller = [
        one
        for one in found
        if one.record.stable and one.record.largest < chosen.record.largest and not _misses(one)
    ]
    dead = " and ".join(clean(one.name) for one in smaller if not one.has_gradient)
    zero = " and ".join(clean(one.name) for one in smaller if one.has_gradient and one.zeros)
    less = [f"Less, but no gradient beyond a limit: {dead}."] if dead else []
    return less + ([f"Less, but a raw weight of zero: {zero}."] if zero else [])


def _constants(found: tuple[Outcome, ...]) -> list[str]:
    """With which constants the forms were tried that have some."""
    told = [f"{clean(one.name)} ({one.constants})" for one in found if one.constants]
    return [f"With the constants that a retrofit chooses: {', '.join(told)}."] if told else []


def _adamw(weight: DecayWeight, current: Outcome | None, chosen: Outcome | None) -> list[str]:
    """The rate for most training runs, which plain gradient descent says nothing about."""
    sizes = {one.name: one.smallest for one in (current, chosen) if one is not None}
    known = {name: size for name, size in sizes.items() if size}
    if not known:
        return []
    each = ", ".join(f"{_number(size)} with {clean(name)}" for name, size in known.items())
    return [
        "AdamW moves every weight by about one learning rate a step, whatever the gradient: keep "
        f"it well below the smallest |w| of the modes ({each}; {clean(weight.name)}) and below "
        "the stability radius."
    ]


def _rate(weight: DecayWeight, safe: Outcome) -> str:
    rate = safe.record.learning_rate
    if not math.isinf(rate):
        return (
            f"Plain gradient descent on {clean(weight.name)} with {clean(safe.name)} stays safe up "
            f"to a learning rate of {_number(rate)}: beyond it a raw weight moves by more than its "
            "own size, or a mode leaves the stable set."
        )
    if safe.zeros:
        return "Every raw weight with a gradient is zero: no learning rate is small beside them."
    return "No mode has a gradient, so this loss says nothing about learning rates."


def _rest(safe: Outcome, rest: float) -> list[str]:
    """The rate of all weights of the layer, where it is the smaller one."""
    if rest <= 0.0 or 1.0 / rest >= APART * safe.record.learning_rate:
        return []
    return [
        "All recurrent weights of the layer together need less: from a rate of "
        f"{_number(1.0 / rest)} on one of them moves by more than its own size."
    ]


def _misses(one: Outcome) -> bool:
    return one.record.unreachable > 0


def _number(value: float) -> str:
    return "infinity" if math.isinf(value) else f"{value:.3g}"
