"""E_m(beta) of every member of a family, on the same inputs against the same reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from memaudit.devices import exact_math, shortage
from memaudit.errors import ArgumentError, SourceError
from memaudit.families.members import Member, mode_values, unlike
from memaudit.families.result import FamilyMember
from memaudit.numerics.crossings import running_maximum
from memaudit.numerics.signals import seeded
from memaudit.options import LARGEST_SEED
from memaudit.stability.moves import error_norm, size
from memaudit.stability.radius import Trial
from memaudit.stability.search import Problem, ascent_errors, random_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memaudit.families.target import Target

    Tick = Callable[[int, int], None]

#: Seeds are apart: the draws of one audit are not those of another with the next seed.
SEED_STRIDE = 1000
#: Climbs that begin at the best draws of every beta.
STARTS = 3


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked of every member."""

    betas: np.ndarray
    draws: int
    #: Steps of gradient ascent after the draws; 0 for none.
    ascent: int
    seeds: tuple[int, ...]
    ball: str
    norm: str
    group: str


def plan_seeds(seed: int, count: int) -> tuple[int, ...]:
    """The seeds of an audit, whose spread is the noise of the draws."""
    return tuple((seed + SEED_STRIDE * k) % LARGEST_SEED for k in range(count))


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
            fact = f"{target.told} answers by numbers that are not finite"
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
    problem = _problem(trial, names, plan, trial.error)
    curves = []
    for number, seed in enumerate(plan.seeds):

        def told(done: int, of: int, number: int = number) -> None:
            tick(number * of + done, len(plan.seeds) * of)

        with shortage(), exact_math(member.subject.device):
            curves.append(np.maximum(_curve(problem, plan, seed, told), trial.start))
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
    drawn = running_maximum(random_errors(problem, plan.betas, plan.draws, generator))
    if not plan.ascent or not problem.differentiable:
        tick(1, 1)
        return drawn
    climbed = ascent_errors(problem, plan.betas, STARTS, plan.ascent, generator, tick)
    return np.maximum.accumulate(np.maximum(drawn, climbed))


def _problem(trial: Trial, names: Sequence[str], plan: Plan, error: Any) -> Problem:
    copies = trial.copies
    return Problem(
        weights={name: copies.weights[name] for name in names},
        roles={name: copies.roles[name] for name in names},
        ball=plan.ball,
        error=error,
        differentiable=copies.differentiable,
        batch=trial.batch(tuple(names)),
    )


def _largest(trial: Trial, ball: str) -> float:
    """The largest size of a weight: |theta| = max over tensors, as in IATN Def. 3.4."""
    copies = trial.copies
    sizes = [float(size(w[None], copies.roles[n].form, ball)) for n, w in copies.weights.items()]
    return max(sizes, default=0.0)


def _edge(trial: Trial, names: Sequence[str], plan: Plan) -> tuple[float | None, float | None]:
    """The margin, and the smallest beta at which a draw of the same seeds reaches the boundary."""
    modes = [values.abs().max() for values in mode_values(trial.copies).values()]
    if not modes:
        return None, None
    margin = 1.0 - float(torch.stack(modes).max())
    if not np.isfinite(margin):
        return None, None
    problem = _problem(trial, names, plan, trial.largest_mode)
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
            f"{target.told} answers {tuple(inputs.shape)} by {got}, the models by "
            f"{tuple(like.shape)}",
            hint="give a target that answers as the models do",
            stage="target",
        )
    return found.to(like.device, torch.float64)
