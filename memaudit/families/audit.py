"""The audit of a family: models of growing size against one functional. Nothing here prints."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from memaudit.audit import Opened, open_source
from memaudit.devices import exact_math, shortage
from memaudit.doctor import environment
from memaudit.errors import ArgumentError, SourceError, clean, nearest
from memaudit.families.crossings import FEWEST, judged
from memaudit.families.result import FamilyMember, FamilyReport
from memaudit.interfaces import BALLS, NORMS, AbstractTarget, Setting
from memaudit.numerics.signals import seeded
from memaudit.options import LARGEST_SEED, LONGEST, SHORTEST
from memaudit.rules import judge
from memaudit.stability.radius import Trial
from memaudit.stability.search import Problem, ascent_errors, random_errors
from memaudit.subjects.moves import error_norm, perturbing_inputs, size
from memaudit.targets import known
from memaudit.targets import target as named

if TYPE_CHECKING:
    from memaudit.interfaces import AbstractPerturbable, AbstractSubject
    from memaudit.report import Identity

Progress = Callable[[str, int, int], None]
Tick = Callable[[int, int], None]

GROUPS = ("recurrent", "input", "readout", "all")
#: From 1e-3 on, two betas per doubling, up to 1.
BETAS = 1e-3 * 2.0 ** (np.arange(21) / 2)
#: Two seeds show the noise of the draws, and each member's curve is the larger of the two.
SEEDS = 2
#: Seeds are apart: the draws of one audit are not those of another with the next seed.
SEED_STRIDE = 1000
#: Climbs that begin at the best draws of every beta.
STARTS = 3
#: Members at least where the largest is the reference, because there is no target.
FEWEST_ALONE = 3
FORMS = (
    "give exp:0.9, poly:1.1 … (memaudit list targets), or a file with a kernel (.npy, .txt, .csv)"
)


class FamilyInterrupted(KeyboardInterrupt):
    """Ctrl-C during the audit of a family; `report` holds the members measured until then."""

    def __init__(self, report: FamilyReport) -> None:
        self.report = report
        super().__init__("the audit was interrupted; the partial report is in .report")


def family(
    sources: Sequence[Any],
    *,
    target: Any = None,
    betas: Sequence[float] | None = None,
    draws: int = 30,
    ascent: int = 10,
    seed: int = 0,
    ball: str = "spectral",
    norm: str = "sobolev",
    group: str = "all",
    steps: int = 100,
    progress: Progress | bool | None = None,
    **options: Any,
) -> FamilyReport:
    """Audit models of growing size m: do the crossings of their curves E_m(beta) shift left?

    E_m(beta) = sup over |theta' - theta_m| <= beta of ||H - H_m(.; theta')||, by `draws` random
    moves and `ascent` steps of gradient ascent (0 for none), with two seeds each. H is `target`:
    "exp:0.9", "poly:1.1" or another of `memaudit list targets`, a file with a kernel, or a
    function (B,T,D) -> (B,T,M); without one the
    largest of at least three is the reference, and has no curve. `options` open the sources, as in
    `memaudit.load`. Ctrl-C raises `FamilyInterrupted`, which carries the partial report.
    """
    check_target(target)
    check_count(sources, target=target is not None)
    grid = np.sort(np.asarray(BETAS if betas is None else betas, float).ravel())
    plan = Plan(grid, draws, ascent, _seeds(seed), ball, norm, group)
    _check(plan, seed=seed, steps=steps)
    started = time.perf_counter()
    if callable(progress):
        found = _measured(sources, target, plan, seed, steps, progress, options)
    else:
        from memaudit.writers.progress import progress_bar

        with progress_bar(wanted=bool(progress)) as advance:
            found = _measured(sources, target, plan, seed, steps, advance, options)
    report = replace(found, timing={"seconds": time.perf_counter() - started})
    report = replace(report, findings=judge(report, family=True))
    if not report.complete:
        raise FamilyInterrupted(report)
    return report


def _measured(
    sources: Sequence[Any],
    target: Any,
    plan: Plan,
    seed: int,
    steps: int,
    progress: Progress,
    options: dict[str, Any],
) -> FamilyReport:
    """Everything but the findings; members that Ctrl-C kept from being measured are missing."""
    members, counted, opened = open_members(sources, options, progress)
    limits = [m.subject.longest for m in members if m.subject.longest is not None]
    steps = min([steps, *limits])
    inputs = perturbing_inputs(members[0].subject, Setting(seed=seed), steps=steps)
    outputs = outputs_of(members, inputs)
    against, members, reference = _reference(target, members, outputs)
    trials = make_trials(members, reference, inputs, plan.norm)
    done: list[FamilyMember] = []
    try:
        for member, trial in zip(members, trials, strict=True):
            stage = f"m = {member.size}"
            progress(stage, 0, 1)
            done.append(
                measure_member(member, trial, plan, lambda n, of, s=stage: progress(s, n, of))
            )
    except KeyboardInterrupt:
        if not done:
            raise
    for item in opened:
        for change in item.changed_files():
            raise change
    report = FamilyReport(
        members=tuple(done),
        betas=plan.betas,
        reference=reference.description,
        scale=max(trial.scale for trial in trials),
        counted=counted,
        crossings=(),
        verdict="undetermined",
        reason="",
        settings=_settings(plan, seed=seed, steps=steps),
        against=against,
        complete=len(done) == len(members),
        environment=environment(),
    )
    return judged(report)


def _reference(
    target: Any, members: list[Member], outputs: int
) -> tuple[Identity | None, list[Member], Target]:
    """What plays H, and the members that are left to be held against it."""
    subject = members[-1].subject
    if target is not None:
        width, pooled = subject.input_size or 1, subject.pooled
        made = make_target(target, inputs=width, outputs=outputs, pooled=pooled)
        return None, members, made

    def answer(inputs: Any) -> Any:
        return subject.respond(inputs.to(subject.device, subject.dtype)).double()

    description = f"the largest member, {clean(subject.identity.source)}"
    return subject.identity, members[:-1], Target(description, answer)


def _settings(plan: Plan, *, seed: int, steps: int) -> dict[str, Any]:
    return {
        "steps": steps,
        "draws": plan.draws,
        "ascent": plan.ascent,
        "seed": seed,
        "seeds": len(plan.seeds),
        "ball": plan.ball,
        "norm": plan.norm,
        "group": plan.group,
    }


def _check(plan: Plan, *, seed: int, steps: int) -> None:
    """Refuse what cannot be measured, before anything is opened."""
    for name, value, names in (
        ("ball", plan.ball, BALLS),
        ("norm", plan.norm, NORMS),
        ("group", plan.group, GROUPS),
    ):
        if value not in names:
            raise ArgumentError(f"unknown {name} {clean(value)!r}", hint=nearest(str(value), names))
    for name, value, low, high in (
        ("steps", steps, SHORTEST, LONGEST),
        ("draws", plan.draws, 1, 1_000_000),
        ("ascent", plan.ascent, 0, 10_000),
        ("seed", seed, 0, LARGEST_SEED),
    ):
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            hint = f"take a whole number from {low} to {high}"
            raise ArgumentError(f"{name} is {clean(value)}", hint=hint)
    if not len(plan.betas) or not ((plan.betas > 0) & (plan.betas < 1e6)).all():
        raise ArgumentError("the betas are no sizes of moves", hint="give positive numbers")


# Members


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """A model, its weights as an argument, and its size m."""

    subject: AbstractSubject
    copies: AbstractPerturbable
    size: int

    @property
    def name(self) -> str:
        """Where it came from."""
        return self.subject.identity.source


def open_members(
    sources: Sequence[Any], options: Mapping[str, Any], progress: Progress
) -> tuple[list[Member], str, list[Opened]]:
    """The members by growing size, and what their sizes count."""
    opened = []
    for number, source in enumerate(sources):
        progress("opening", number, len(sources))
        opened.append(open_source(source, **options))
    progress("opening", len(sources), len(sources))
    pairs = [(item.subject, _copies(item.subject)) for item in opened]
    _check_alike([subject for subject, _ in pairs])
    sizes, counted = _sizes(pairs)
    members = [Member(*pair, size) for pair, size in zip(pairs, sizes, strict=True)]
    return sorted(members, key=lambda member: member.size), counted, opened


def check_count(sources: Sequence[Any], *, target: bool) -> None:
    """Refuse too few models, before anything is opened."""
    count = 1 if isinstance(sources, str) else len(sources)
    if count < FEWEST:
        hint = "give models of growing size; for one use memaudit scan"
        raise ArgumentError(f"a family has at least {FEWEST} members, not {count}", hint=hint)
    if count < FEWEST_ALONE and not target:
        fact = f"a family without a target has at least {FEWEST_ALONE} members, not {count}"
        raise ArgumentError(fact, hint="the largest is the reference: give a target or more models")


def mode_values(copies: AbstractPerturbable) -> Mapping[str, Any]:
    """The eigenvalues (1,n) of every layer as it is, where the weights alone decide them."""
    first = next(iter(copies.weights), None)
    return {} if first is None else copies.modes({first: copies.weights[first][None]})


def _copies(subject: AbstractSubject) -> AbstractPerturbable:
    copies = None if subject.parts() else subject.perturbable()
    if copies is None:
        why = "it runs part by part" if subject.parts() else "they are not known by name"
        raise SourceError(
            "E_UNSUPPORTED",
            f"the weights of this model cannot be moved: {why}",
            hint="build the model in Python and pass the module to memaudit.family",
            source=subject.identity.source,
            stage="open",
        )
    return copies


def _check_alike(subjects: Sequence[AbstractSubject]) -> None:
    first = subjects[0]
    for other in subjects[1:]:
        for what, mine, theirs in (
            ("inputs", first.input_size, other.input_size),
            ("pooled answers", first.pooled, other.pooled),
        ):
            if mine != theirs:
                raise unlike(first, other, what, mine, theirs)


def unlike(
    first: AbstractSubject, other: AbstractSubject, what: str, mine: Any, theirs: Any
) -> ArgumentError:
    """The error for members that do not answer the same question."""
    names = f"{clean(first.identity.source)} and {clean(other.identity.source)}"
    fact = f"{names} are no family: {what} {mine} and {theirs}"
    return ArgumentError(fact, hint="give models that map the same inputs to the same outputs")


def _sizes(
    pairs: Sequence[tuple[AbstractSubject, AbstractPerturbable]],
) -> tuple[list[int], str]:
    """The size of each member, and the first count by which they all differ."""
    counts = {
        "states": [_states(subject) for subject, _ in pairs],
        "modes": [sum(v.shape[-1] for v in mode_values(c).values()) for _, c in pairs],
        "parameters": [subject.identity.parameters for subject, _ in pairs],
    }
    for counted, sizes in counts.items():
        if all(sizes) and len(set(sizes)) == len(sizes):
            return sizes, counted
    parameters = ", ".join(str(size) for size in counts["parameters"])
    fact = f"two members are of one size (parameters: {parameters})"
    raise ArgumentError(fact, hint="a family grows: give models of different sizes")


def _states(subject: AbstractSubject) -> int:
    return sum(layer.size * layer.directions for layer in subject.identity.recurrences)


# Target


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """What a family is held against: the words for the report, and the answers to inputs."""

    description: str
    answer: Callable[[torch.Tensor], torch.Tensor]


def check_target(target: Any) -> None:
    """Refuse what cannot be a target, before anything is opened."""
    if target is None or callable(target) or isinstance(target, AbstractTarget):
        return
    if not isinstance(target, str | Path) or not str(target).strip():
        raise ArgumentError(f"the target is {clean(target)!r}", hint=FORMS)
    if known(target):
        named(str(target))
    elif not _is_file(Path(target)):
        raise ArgumentError(f"the target {clean(target)!r} is no name and no file", hint=FORMS)


def make_target(target: Any, *, inputs: int, outputs: int, pooled: bool) -> Target:
    """The target of models that map `inputs` channels to `outputs`."""
    if callable(target):
        function: Any = target
        return Target(f"the function {clean(getattr(target, '__name__', 'target'))}", function)
    if pooled:
        raise ArgumentError(
            "a target answers at every step, these models answer once per sequence",
            hint="give the target as a function (B,T,D) -> (B,M) in Python",
        )
    if isinstance(target, AbstractTarget) or known(target):
        return _known_target(named(target) if isinstance(target, str) else target, inputs, outputs)
    from memaudit.loading.series import read_kernel
    from memaudit.numerics.convolution import filtered

    kernel = _shaped_kernel(read_kernel(Path(target).expanduser()), outputs, inputs)
    return Target(f"the kernel {clean(target)}", lambda u: filtered(u, kernel))


def _known_target(target: AbstractTarget, inputs: int, outputs: int) -> Target:
    if (inputs, outputs) != (target.inputs, target.outputs):
        fact = f"the target {target} maps {target.inputs} inputs to {target.outputs} outputs"
        hint = f"these models map {inputs} to {outputs}: give a kernel (T, {outputs}, {inputs})"
        raise ArgumentError(fact, hint=f"{hint}, or a function in Python")
    return Target(f"the target {target}", target.answer)


def _shaped_kernel(values: np.ndarray, outputs: int, inputs: int) -> torch.Tensor:
    """A kernel (T,), (T,M·D) or (T,M,D) as (T,M,D); refuses one of other widths."""
    kernel = torch.as_tensor(values, dtype=torch.float64)
    fits = kernel.shape[1:] in ((outputs, inputs), (outputs * inputs,))
    if not kernel.numel() or not (fits or (kernel.ndim == 1 and outputs * inputs == 1)):
        fact = f"the kernel has the shape {tuple(kernel.shape)}"
        hint = f"these models map {inputs} inputs to {outputs} outputs: give (T, {outputs}, "
        raise ArgumentError(fact, hint=f"{hint}{inputs}), or a function in Python")
    return kernel.reshape(-1, outputs, inputs)


def _is_file(path: Path) -> bool:
    try:
        return path.expanduser().is_file()
    except (OSError, ValueError, RuntimeError):  # too long, with a NUL byte, or of an unknown home
        return False


# Error curves


@dataclass(frozen=True, slots=True)
class Plan:
    """How every member is moved."""

    betas: np.ndarray
    draws: int
    #: Steps of gradient ascent after the draws; 0 for none.
    ascent: int
    seeds: tuple[int, ...]
    ball: str
    norm: str
    group: str


def _seeds(seed: int) -> tuple[int, ...]:
    """The seeds of an audit, whose spread is the noise of the draws."""
    return tuple((seed + SEED_STRIDE * k) % LARGEST_SEED for k in range(SEEDS))


def make_trials(
    members: Sequence[Member], target: Target, inputs: torch.Tensor, norm: str
) -> list[Trial]:
    """The trials of all members: the same inputs, the same reference."""
    trials = []
    for member in members:
        subject = member.subject
        fed = inputs.to(subject.device, subject.dtype)
        with torch.no_grad(), shortage(), exact_math(subject.device):
            own = subject.respond(fed).double()
            wanted = _answers(target, fed, own)
            still = _answers(target, torch.zeros_like(fed[:1]), own[:1])
            start = error_norm((own - wanted)[None], norm, pooled=subject.pooled)
            scale = error_norm((wanted - still)[None], norm, pooled=subject.pooled)
        numbers = float(scale[0]), float(start[0])
        if not np.isfinite(numbers[0]):
            fact = f"{target.description} answers by numbers that are not finite"
            hint = "give another target, or fewer steps"
            raise SourceError("E_UNSUPPORTED", fact, hint=hint, stage="target")
        trials.append(Trial(member.copies, fed, wanted, norm, subject.pooled, *numbers))
    return trials


def outputs_of(members: Sequence[Member], inputs: torch.Tensor) -> int:
    """The width M of the answers; refuses members whose answers differ in it."""
    widths = []
    for member in members:
        fed = inputs[:1].to(member.subject.device, member.subject.dtype)
        widths.append(int(member.subject.respond(fed).shape[-1]))
        if widths[-1] != widths[0]:
            pair = members[0].subject, member.subject
            raise unlike(*pair, "outputs", widths[0], widths[-1])
    return widths[0]


def measure_member(member: Member, trial: Trial, plan: Plan, tick: Tick) -> FamilyMember:
    """The curve of one member, and how far its weights and modes stand from trouble."""
    names = trial.named(plan.group)
    if not names:
        fact = f"the model has no {plan.group} weights that can be moved"
        raise ArgumentError(fact, hint="choose another group", source=member.name)
    problem = trial.problem(names, plan.ball)
    curves = []
    for number, seed in enumerate(plan.seeds):

        def advance(done: int, of: int, number: int = number) -> None:
            tick(number * of + done, len(plan.seeds) * of)

        with shortage(), exact_math(member.subject.device):
            curves.append(np.maximum(_curve(problem, plan, seed, advance), trial.start))
    margin, radius = _edge(trial, names, plan)
    return FamilyMember(
        subject=member.subject.identity,
        size=member.size,
        start=trial.start,
        errors=np.max(curves, 0),
        seeds=tuple(curves),
        weight=_largest(trial, plan.ball),
        margin=margin,
        radius=radius,
    )


def _curve(problem: Problem, plan: Plan, seed: int, tick: Tick) -> np.ndarray:
    """E(beta) by the draws of one seed, and by gradient ascent where there are gradients."""
    generator = seeded(seed)
    # A ball holds whatever the smaller ones hold.
    drawn = random_errors(problem, plan.betas, plan.draws, generator)
    drawn = np.maximum.accumulate(np.asarray(drawn, float).max(1))
    if not plan.ascent or not problem.differentiable:
        tick(1, 1)
        return drawn
    climbed = ascent_errors(problem, plan.betas, STARTS, plan.ascent, generator, tick)
    return np.maximum.accumulate(np.maximum(drawn, climbed))


def _largest(trial: Trial, ball: str) -> float:
    """The largest size of a weight: |theta| = max over tensors, as in IATN Def. 3.4."""
    roles = trial.roles
    sizes = [float(size(w[None], roles[n].form, ball)) for n, w in trial.weights.items()]
    return max(sizes, default=0.0)


def _edge(trial: Trial, names: Sequence[str], plan: Plan) -> tuple[float | None, float | None]:
    """The margin, and the smallest beta at which a draw of the same seeds reaches the boundary."""
    modes = [values.abs().max() for values in mode_values(trial.copies).values()]
    if not modes:
        return None, None
    margin = 1.0 - float(torch.stack(modes).max())
    if not np.isfinite(margin):
        return None, None
    problem = trial.problem(names, plan.ball, trial.largest_mode)
    reached = np.zeros(len(plan.betas), bool)
    for seed in plan.seeds:
        sizes = random_errors(problem, plan.betas, plan.draws, seeded(seed))
        reached |= (sizes >= 1).any(1)
    return margin, float(plan.betas[reached.argmax()]) if reached.any() else np.inf


def _answers(target: Target, inputs: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    found = target.answer(inputs)
    if not isinstance(found, torch.Tensor) or found.shape != like.shape:
        got = tuple(found.shape) if isinstance(found, torch.Tensor) else type(found).__name__
        raise SourceError(
            "E_UNSUPPORTED",
            f"{target.description} answers {tuple(inputs.shape)} by {got}, the models by "
            f"{tuple(like.shape)}",
            hint="give a target that answers as the models do",
            stage="target",
        )
    return found.to(like.device, torch.float64)
