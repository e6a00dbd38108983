"""The audit of a family: models of growing size against one functional. Nothing here prints."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from memaudit.contracts import Setting
from memaudit.doctor import environment
from memaudit.errors import ArgumentError, clean, nearest
from memaudit.families.curves import Plan, make_trials, measure_member, outputs_of, plan_seeds
from memaudit.families.members import FEWEST, Member, check_count, open_members
from memaudit.families.result import Crossing, FamilyMember, FamilyReport
from memaudit.families.target import Target, check_target, make_target
from memaudit.findings.judge_family import judge_family
from memaudit.numerics.crossings import Span, crossing, height, trend
from memaudit.options import LARGEST_SEED, LONGEST, SHORTEST
from memaudit.stability.moves import perturbing_inputs
from memaudit.stability.result import BALLS, NORMS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memaudit.report import Identity

    Progress = Callable[[str, int, int], None]

GROUPS = ("recurrent", "input", "readout", "all")
#: From 1e-3 on, two betas per doubling, up to 1.
BETAS = 1e-3 * 2.0 ** (np.arange(21) / 2)
#: Two seeds show the noise of the draws, and each member's curve is the larger of the two.
SEEDS = 2


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
    plan = Plan(grid, draws, ascent, plan_seeds(seed, SEEDS), ball, norm, group)
    _check(plan, seed=seed, steps=steps)
    started = time.perf_counter()
    if callable(progress):
        found = _measured(sources, target, plan, seed, steps, progress, options)
    else:
        from memaudit.writers.progress import progress_bar

        with progress_bar(wanted=bool(progress)) as advance:
            found = _measured(sources, target, plan, seed, steps, advance, options)
    report = replace(found, timing={"seconds": time.perf_counter() - started})
    report = replace(report, findings=judge_family(report))
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
        reference=reference.told,
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


def judged(report: FamilyReport) -> FamilyReport:
    """The report with its crossings and its verdict, from the curves alone."""
    pairs = zip(report.members, report.members[1:], strict=False)
    found = tuple(_crossing(report, small, large) for small, large in pairs)
    first = float(report.betas[0])
    verdict, reason = trend([Span(c.beta, *c.interval, below=0 < c.beta <= first) for c in found])
    if fact := _unlike_reference(report) or (_too_short(report) if verdict == "stable" else ""):
        verdict, reason = "undetermined", fact
    return replace(report, crossings=found, verdict=verdict, reason=reason)


def _unlike_reference(report: FamilyReport) -> str:
    """Why there is nothing to compare; empty when two neighbours can be.

    A member whose error is as large as the reference is lost before anything moves, and curves are
    compared as long as the smaller of two neighbours is not.
    """
    starts = [member.start for member in report.members]
    if len(starts) < FEWEST or any(start < report.scale for start in starts[:-1]):
        return ""
    fewer = f"only the largest member (E(0) = {starts[-1]:.3g})"
    which = fewer if starts[-1] < report.scale else f"no member (E(0) from {min(starts):.3g} on)"
    return f"{which} approximates the reference, of size {report.scale:.3g}: nothing to compare"


def _too_short(report: FamilyReport) -> str:
    """Why the inputs cannot show that a family is stable; empty when they can.

    Over T steps no mode grows by more than exp(T beta): what is slower than T stays unseen.
    """
    margins = [member.margin for member in report.members if member.margin is not None]
    slowest, steps = min(margins, default=1.0), report.settings["steps"]
    if slowest * steps >= 1:
        return ""
    told = f"{steps} steps are too few to tell: the slowest mode"
    if slowest <= 0:
        return f"{told} never decays"
    return f"{told} lasts {1 / slowest:.0f} steps; give steps={math.ceil(1 / slowest)} or more"


def _crossing(report: FamilyReport, small: FamilyMember, large: FamilyMember) -> Crossing:
    told = {"starts": (small.start, large.start), "cap": report.scale}
    beta = crossing(report.betas, small.errors, large.errors, **told)
    seeds = [
        crossing(report.betas, one, other, **told)
        for one, other in zip(small.seeds, large.seeds, strict=True)
    ]
    error = height(report.betas, small.errors, beta) if 0 < beta < np.inf else None
    low, high = min([beta, *seeds]), max([beta, *seeds])
    # What has happened at the first beta may have happened anywhere below it.
    ends = (0.0 if low <= report.betas[0] else low), high
    return Crossing(small.size, large.size, beta, ends, error)


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

    told = f"the largest member, {clean(subject.identity.source)}"
    return subject.identity, members[:-1], Target(told, answer)


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
    for name, value, known in (
        ("ball", plan.ball, BALLS),
        ("norm", plan.norm, NORMS),
        ("group", plan.group, GROUPS),
    ):
        if value not in known:
            raise ArgumentError(f"unknown {name} {clean(value)!r}", hint=nearest(str(value), known))
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
