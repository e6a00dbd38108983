"""The gradients of one loss on all recurrent weights, and what each layer makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from memaudit.errors import ArgumentError
from memaudit.gradient.result import Gradient
from memaudit.probes.decay_weight import find_decay_weight
from memaudit.probes.gradient_reasoning import reasoning
from memaudit.probes.reparam_trial import NOTHING, outcomes, recommended

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from memaudit.contracts import AbstractPerturbable, AbstractSubject
    from memaudit.probes.decay_weight import DecayWeight
    from memaudit.probes.gradient_loss import Task
    from memaudit.probes.reparam_trial import Outcome

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
) -> tuple[Gradient, ...]:
    """One record per recurrent layer."""
    names = [name for name, role in copies.roles.items() if role.group == "recurrent"]
    if not names:
        return (unread(NO_RECURRENCE),)
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


def unread(note: str) -> Gradient:
    """The record of a model about which nothing is known, with the reason."""
    return Gradient(
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
) -> Gradient:
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
    return Gradient(
        layer=layer or WHOLE,
        cell=known.cell,
        current=known.form if weight is None else weight.form,
        weights=names,
        loss=task.told,
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
