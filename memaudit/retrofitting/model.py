"""A model put into a stable form, and put back: memaudit.retrofit and memaudit.fold."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from memaudit.audit import load
from memaudit.errors import ArgumentError, MemauditError, SourceError, clean
from memaudit.interfaces import AbstractPerturbable, AbstractSubject, Setting, plain_name
from memaudit.numerics.signals import seeded
from memaudit.retrofitting.finding import choose, find_decays
from memaudit.retrofitting.planning import Order, Plan, check_order, make_plan
from memaudit.retrofitting.result import RefusedLayer, Retrofit, RetrofittedLayer
from memaudit.retrofitting.weights import retrofitted_weights, swap, unswap
from memaudit.subjects.callables import TRIAL_ERRORS, width_candidates, wrap

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from memaudit.interfaces import AbstractReparam, DenseDecay, DiagonalDecay
    from memaudit.retrofitting.weights import RetrofittedWeight
    from memaudit.stability.result import Radius

    Decay = DiagonalDecay | DenseDecay


def retrofit(
    model: nn.Module | AbstractSubject,
    reparam: str | AbstractReparam = "best",
    *,
    project: bool = False,
    layers: str | Sequence[str] | None = None,
    radius: bool = False,
    **constants: Any,
) -> Retrofit:
    """Put the recurrent weights of a model behind a reparameterization, in place.

    What the model computes stays the same, to the last bit until a weight is trained; one forward
    pass before and one after show it. The constants of the form are chosen from the spectrum of
    every layer unless they are given, as in `retrofit(model, "best", a=1.0, b=0.05)`. Modes that
    the form does not reach make it refuse their layer; `project=True` moves them inside and says
    how far. `layers` chooses by names, perhaps with wildcards. `radius=True` measures E(beta)
    before and after, which takes hundreds of passes. Do this before an optimizer is built.
    """
    order = Order(reparam, constants, project)
    return retrofit_weights(model, order, layers=layers, radius=radius)[0]


def retrofit_weights(
    model: nn.Module | AbstractSubject,
    order: Order,
    *,
    layers: str | Sequence[str] | None,
    radius: bool,
) -> tuple[Retrofit, list[Decay]]:
    """What was done, and of every layer that was done the weight that makes its modes."""
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
    paths = owner_paths(modules)
    names = [".".join(filter(None, (paths.get(p.decay.owner, ""), p.decay.name))) for p in kept]
    answers = Answers(model, radius=radius) if kept else None
    before = answers.radii(names) if answers else []
    weights = [_swapped(plan) for plan in kept]
    difference = answers.difference() if answers else None
    after = answers.radii(names) if answers else []
    done: list[RetrofittedLayer] = []
    for plan, name, weight, first, last in zip(kept, names, weights, before, after, strict=True):
        measured = last or first
        done.append(
            RetrofittedLayer(
                layer=plan.decay.layer,
                cell=plan.decay.cell,
                weight=name,
                old=plan.old,
                new=weight.form_name,
                time=plan.form.time,
                modes=plan.modes,
                constants=weight.constants(),
                difference=difference,
                rounding=_rounding(weight),
                radius_before=None if first is None else first.value,
                radius_after=None if last is None else last.value,
                radius_criterion="" if measured is None else measured.criterion,
                moved=plan.moved,
                farthest=plan.farthest,
                condition=plan.condition,
                note=plan.decay.note,
            )
        )
    made = Retrofit(
        reparam=order.reparam if isinstance(order.reparam, str) else order.reparam.name,
        layers=tuple(done),
        refused=tuple(plan for plan in plans if isinstance(plan, RefusedLayer)),
        difference=difference,
        notes=() if answers is None else tuple(dict.fromkeys(answers.notes)),
    )
    return made, [plan.decay for plan in kept]


def fold(model: nn.Module | AbstractSubject) -> tuple[str, ...]:
    """Put every retrofitted weight back into its plain form, in place; their names.

    Weights that were not trained are those of before, bit by bit.
    """
    found: list[str] = []
    for part, module in modules_of(model).items():
        for key, (owner, name) in retrofitted_weights(module).items():
            unswap(owner, name)
            found.append(f"{part}.{key}" if part else key)
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
            f"the subject {model.identity.source} does not give its modules",
            hint="retrofit the module itself",
        )
    raise ArgumentError(
        f"{type(model).__name__} is no model", hint="give an nn.Module or what memaudit.load gives"
    )


def owner_paths(modules: Mapping[str, nn.Module]) -> dict[nn.Module, str]:
    """The path of every module inside the live modules of a model."""
    found: dict[nn.Module, str] = {}
    for part, module in modules.items():
        for path, inner in module.named_modules():
            found.setdefault(inner, ".".join(filter(None, (part, path))))
    return found


def _swapped(plan: Plan) -> RetrofittedWeight:
    """One weight behind its form, with its modes inside."""
    if plan.inside is not None:
        with torch.no_grad():
            plan.decay.owner.get_parameter(plan.decay.name).copy_(plan.inside)
    return swap(plan.decay, plan.form)


def _rounding(weight: RetrofittedWeight) -> float:
    """How far the stored weight is from what the form makes, over its largest number."""
    with torch.no_grad():
        off = (weight.made(*weight.starts()) - weight.anchor).abs().amax()
        return float(off / weight.anchor.abs().amax().clamp_min(torch.finfo(off.dtype).tiny))


#: What quantising libraries put on a model of transformers, and on parameters.
QUANTISED = ("quantization_method", "is_quantized", "is_loaded_in_8bit", "is_loaded_in_4bit")


def require_plain(modules: Iterable[nn.Module]) -> None:
    """Refuse a second retrofit, and quantised weights."""
    for module in modules:
        done = next(iter(retrofitted_weights(module)), None)
        if done is not None:
            path = done.rpartition(".")[0]
            raise ArgumentError(
                f"{clean(path or type(module).__name__)} is retrofitted already",
                hint="memaudit.fold(model) first",
            )
        format_name = _quantised(module)
        if format_name:
            raise SourceError(
                "E_UNSUPPORTED",
                f"the model is quantised ({clean(format_name)}): its weights cannot be trained in "
                "another form",
                hint="retrofit the model before it is quantised, and quantise what was folded",
                stage="retrofit",
            )


def require_no_optimizer(weights: Iterable[torch.Tensor]) -> None:
    """Refuse weights that an optimizer holds: it would go on training those of before."""
    asked = {id(weight) for weight in weights}
    for optimizer in _optimizers():
        held = (p for group in optimizer.param_groups for p in group.get("params", ()))
        if any(id(p) in asked for p in held):
            raise ArgumentError(
                f"the optimizer {clean(type(optimizer).__name__)} was built before the retrofit "
                "and would train weights that the model no longer has",
                hint="retrofit first, then build the optimizer",
            )


def nothing_recurrent(module: nn.Module) -> SourceError:
    """The refusal of a model without recurrent layers."""
    return SourceError(
        "E_UNSUPPORTED",
        f"nothing recurrent was found in {clean(type(module).__name__)}: there is no mode to put "
        "into another form",
        hint="memaudit scan shows which layers a model has",
        stage="retrofit",
    )


def _optimizers() -> list[torch.optim.Optimizer]:
    # By type alone: asking foreign objects for their class may run code of theirs.
    return [o for o in gc.get_objects() if issubclass(type(o), torch.optim.Optimizer)]


def _quantised(module: nn.Module) -> str:
    for name in QUANTISED:
        value: Any = getattr(module, name, None)
        if value:
            return name if value is True else str(value)
    for path, part in module.named_modules():
        library = type(part).__module__
        if library.startswith(("bitsandbytes", "torch.ao.nn.quantized", "torch.nn.quantized")):
            return f"{path}: {type(part).__name__}"
    whole = (n for n, p in module.named_parameters() if not _is_real(p))
    return next((f"{name} holds whole numbers" for name in whole), "")


def _is_real(weight: torch.Tensor) -> bool:
    return weight.is_floating_point() or weight.is_complex()


#: Rows and steps of the inputs.
ROWS, STEPS = 2, 32


class Answers:
    """The answers of a model, or of each of its parts, to a few random inputs."""

    def __init__(self, model: nn.Module | AbstractSubject, *, radius: bool) -> None:
        self._model, self._measured = model, radius
        self.notes: list[str] = []
        self._subject: AbstractSubject | None = None
        self._before = self._now()

    def difference(self) -> float | None:
        """The largest change since the beginning, over the largest answer; None without one."""
        if self._before is None:
            return None
        now = self._now()
        if now is None:
            return None
        pairs = [(self._before[part], answer) for part, answer in now.items()]
        sizes = [float((after - before).abs().amax()) for before, after in pairs]
        scale = max(float(before.abs().amax()) for before, _ in pairs)
        return max(sizes) / scale if scale > 0.0 else max(sizes)

    def radii(self, weights: Sequence[str]) -> list[Radius | None]:
        """The radius of the weights behind every name; None where it is not measured."""
        try:
            return [self._radius(weight) for weight in weights]
        except MemauditError as error:
            self._measured = False
            self.notes.append(f"E(beta) was not measured: {error.fact}; {error.hint}")
            return [None] * len(weights)

    def _radius(self, weight: str) -> Radius | None:
        if not self._measured or self._subject is None:
            return None
        for part, subject in _parts(self._subject).items():
            if not part or weight.startswith(f"{part}."):
                found = tolerance_radius(subject, weight.removeprefix(f"{part}."))
                if found is not None:
                    return found
        return None

    def _now(self) -> Mapping[str, Tensor] | None:
        try:
            if not self._runs_the_model():
                return self._opened()
            assert self._subject is not None
            return _answers(self._subject)
        except MemauditError as error:
            self._subject = None
            self.notes.append(
                f"the model could not be run by itself, so no answers were compared: {error.fact}"
            )
            return None

    def _runs_the_model(self) -> bool:
        """Whether what was opened is the live model: adapters may have taken a copy of it."""
        if self._subject is None:
            return False
        return self._subject is self._model or any(
            module is self._model for module in self._subject.live_modules().values()
        )

    def _opened(self) -> Mapping[str, Tensor]:
        """The answers of the model, opened anew.

        Any numbers of the width that a module states show a difference: whether it takes time
        first need not be found out, by passes that nobody asked for.
        """
        model = self._model
        if isinstance(model, nn.Module) and not self._measured:
            with suppress(MemauditError, *TRIAL_ERRORS):
                self._subject = wrap(model, input_size=width_candidates(model)[0])
                return _answers(self._subject)
        self._subject = model if isinstance(model, AbstractSubject) else load(model)
        return _answers(self._subject)


def _answers(subject: AbstractSubject) -> dict[str, Tensor]:
    parts = _parts(subject)
    return {name: part.respond(_inputs(part)).double() for name, part in parts.items()}


def _parts(subject: AbstractSubject) -> Mapping[str, AbstractSubject]:
    return {"": subject} if subject.input_size is not None else subject.parts()


def _inputs(subject: AbstractSubject) -> Tensor:
    steps = STEPS if subject.longest is None else min(STEPS, subject.longest)
    drawn = torch.randn(ROWS, steps, subject.input_size or 1, generator=seeded(0))
    return drawn.to(subject.device, subject.dtype)


#: From the smallest beta of StableSSM on, two to a decade.
RADIUS_BETAS = tuple(1e-3 * 10 ** (k / 2) for k in range(7))
RADIUS_STEPS = 64


def tolerance_radius(subject: AbstractSubject, weight: str) -> Radius | None:
    """How far the weights behind a name may move until the answers change by a tenth.

    `weight` is the plain name in the module. None where the model has no such weights to move.
    """
    from memaudit.stability.radius import Effort, GroupSearch, make_trial

    copies = subject.perturbable()
    names = () if copies is None else _behind(copies, weight)
    if not names:
        return None
    trial = make_trial(subject, Setting(), norm="sobolev", steps=RADIUS_STEPS, target=None)
    steps = 4 if trial.batches(names) else 0
    effort = Effort(
        RADIUS_BETAS, draws=8, starts=(1, 1), steps=steps, seeds=(0,), tol=1.0, atol=0.1
    )
    search = GroupSearch(trial, "all", names, "max-abs", effort, lambda *_: None)
    return search.tolerance_radius()


def _behind(copies: AbstractPerturbable, weight: str) -> tuple[str, ...]:
    """The movable weights of that plain name; a subject may leave out the first parts of it."""
    names = {name: plain_name(name) for name in copies.weights}
    parts = weight.split(".")
    for cut in range(len(parts)):
        end = ".".join(parts[cut:])
        found = tuple(n for n, plain in names.items() if plain == end)
        # A subject may have the module of its source inside of one of its own.
        found = found or tuple(n for n, plain in names.items() if plain.endswith(f".{end}"))
        if found:
            return found
    return ()
