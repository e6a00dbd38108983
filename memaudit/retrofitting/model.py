"""A model put into a stable form, and put back: `memaudit.retrofit` and `memaudit.fold`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from memaudit.contracts import AbstractSubject
from memaudit.errors import ArgumentError
from memaudit.retrofitting.answers import Answers
from memaudit.retrofitting.checking import (
    nothing_recurrent,
    require_no_optimizer,
    require_plain,
)
from memaudit.retrofitting.finding import choose, find_decays
from memaudit.retrofitting.plain_state import retrofitted_names
from memaudit.retrofitting.planning import Order, Plan, check_order, make_plan
from memaudit.retrofitting.radii import SMALL
from memaudit.retrofitting.result import RefusedLayer, Retrofit, RetrofittedLayer
from memaudit.retrofitting.swapping import swap, unswap

if TYPE_CHECKING:
    from memaudit.reparam import AbstractReparam
    from memaudit.retrofitting.form import RetrofittedWeight
    from memaudit.stability.result import Radius


def retrofit(
    model: nn.Module | AbstractSubject,
    reparam: str | AbstractReparam = "best",
    *,
    project: bool = False,
    layers: str | Sequence[str] | None = None,
    radius: bool | None = None,
    **constants: Any,
) -> Retrofit:
    """Put the recurrent weights of a model behind a reparameterization, in place.

    What the model computes stays the same, to the last bit until a weight is trained. The
    constants of the form are chosen from the spectrum of every layer unless they are given, as in
    `retrofit(model, "best", a=1.0, b=0.05)`. Modes that the form does not reach make it refuse
    their layer; `project=True` moves them inside and says how far. `layers` chooses by names,
    perhaps with wildcards. `radius` measures E(beta) before and after; None does so where it is
    quick: for models of up to two million numbers whose copies run at once. Do this before an
    optimizer is built.
    """
    order = Order(reparam, constants, project)
    check_order(order)
    modules = modules_of(model)
    require_plain(modules.values())
    decays = find_decays(modules)
    if not decays:
        raise nothing_recurrent(next(iter(modules.values())))
    patterns = [layers] if isinstance(layers, str) else layers
    plans = [make_plan(decay, order) for decay in choose(decays, patterns)]
    kept = [plan for plan in plans if isinstance(plan, Plan)]
    require_no_optimizer(plan.decay.owner.get_parameter(plan.decay.name) for plan in kept)
    answers = Answers(model, measured=_measures(radius, modules), patient=radius is True)
    before = [answers.radius(_name(modules, plan)) for plan in kept]
    done = [_done(plan, answers, modules) for plan in kept]
    after = [answers.radius(layer.weight) for layer in done]
    named = zip(done, before, after, strict=True)
    return Retrofit(
        reparam=reparam if isinstance(reparam, str) else reparam.name,
        layers=tuple(_with_radii(*one) for one in named),
        refused=tuple(plan for plan in plans if isinstance(plan, RefusedLayer)),
        difference=answers.difference() if done else None,
        notes=answers.notes,
    )


def fold(model: nn.Module | AbstractSubject) -> tuple[str, ...]:
    """Put every retrofitted weight back into its plain form, in place; their names.

    Weights that were not trained are those of before, bit by bit.
    """
    found: list[str] = []
    for part, module in modules_of(model).items():
        for path, owner in list(module.named_modules()):
            for name in retrofitted_names(owner):
                unswap(owner, name)
                found.append(".".join(filter(None, (part, path, name))))
    if not found:
        raise ArgumentError(
            "nothing in the model is retrofitted", hint="memaudit.retrofit(model) comes first"
        )
    return tuple(found)


def modules_of(model: Any) -> dict[str, nn.Module]:
    """The live modules of a model or of a subject."""
    if isinstance(model, nn.Module):
        return {"": model}
    if isinstance(model, AbstractSubject):
        found = dict(model.live_modules())
        if found:
            return found
        raise ArgumentError(
            f"the subject {model.identity.source} does not tell its modules",
            hint="retrofit the module itself",
        )
    raise ArgumentError(
        f"{type(model).__name__} is no model", hint="give an nn.Module or what memaudit.load gives"
    )


def _measures(radius: bool | None, modules: Mapping[str, nn.Module]) -> bool:
    numbers = sum(p.numel() for m in modules.values() for p in m.parameters())
    return numbers <= SMALL if radius is None else radius


def _done(plan: Plan, answers: Answers, modules: Mapping[str, nn.Module]) -> RetrofittedLayer:
    """One weight behind its form."""
    decay = plan.decay
    name = _name(modules, plan)
    if plan.inside is not None:
        with torch.no_grad():
            decay.owner.get_parameter(decay.name).copy_(plan.inside)
    weight = swap(decay, plan.form)
    return RetrofittedLayer(
        layer=decay.layer,
        cell=decay.cell,
        weight=name,
        old=plan.old,
        new=weight.told,
        time=plan.form.time,
        modes=plan.modes,
        constants=weight.constants(),
        difference=answers.difference(),
        rounding=rounding_of(weight),
        moved=plan.moved,
        farthest=plan.farthest,
        condition=plan.condition,
        note=decay.note,
    )


def rounding_of(weight: RetrofittedWeight) -> float:
    """How far the stored weight is from what the form makes, over its largest number."""
    with torch.no_grad():
        off = (weight.made(*weight.starts()) - weight.anchor).abs().amax()
        return float(off / weight.anchor.abs().amax().clamp_min(torch.finfo(off.dtype).tiny))


def _name(modules: Mapping[str, nn.Module], plan: Plan) -> str:
    """The plain name of the weight in the model."""
    for part, module in modules.items():
        for path, inner in module.named_modules():
            if inner is plan.decay.owner:
                return ".".join(filter(None, (part, path, plan.decay.name)))
    return plan.decay.name


def _with_radii(
    layer: RetrofittedLayer, before: Radius | None, after: Radius | None
) -> RetrofittedLayer:
    told = after or before
    return replace(
        layer,
        radius_before=None if before is None else before.value,
        radius_after=None if after is None else after.value,
        radius_criterion="" if told is None else told.criterion,
    )
