"""Students of growing size, trained as in App. D of the paper, and their curves E_m(beta)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

import memaudit
from examples.reproduce.row import Number
from examples.reproduce.students import Fit, RecurrentStudent, fit
from memaudit.families.crossings import LEAD, Span, trend

if TYPE_CHECKING:
    from examples.reproduce.row import Effort
    from memaudit.families.result import FamilyReport
    from memaudit.interfaces import AbstractTarget

#: rho(t) = (t+1)^-1.5 in steps of 0.1, trained over t <= 3.2 and tested over t <= 10.
TARGET, STEP, TRAINED, TESTED = "poly:1.5,0.1", 0.1, 32, 100
SAMPLES, BATCH, RATE, EPOCHS, GOAL = 12_800, 128, 5e-3, 1000, 1e-8
#: Updates of one epoch.
EPOCH = SAMPLES // BATCH
#: beta = 1e-11 · 2^k for k <= 35, three draws of each.
BETAS, DRAWS = tuple(1e-11 * 2.0**k for k in range(36)), 3


def train(
    size: int,
    target: AbstractTarget | Callable[..., Any] | str = TARGET,
    *,
    updates: int,
    seed: int,
    activation: str = "tanh",
    reparam: str = "direct",
    length: int = TRAINED,
    samples: int = SAMPLES,
    until: float = GOAL,
) -> tuple[RecurrentStudent, Fit]:
    """One student, trained in float32 as torch does by default, given back in float64."""
    draw = torch.Generator().manual_seed(1000 * seed + size)
    student = RecurrentStudent(
        size, activation=activation, reparam=reparam, step=STEP, generator=draw
    ).float()
    made = fit(
        student,
        target,
        updates=updates,
        length=length,
        batch=BATCH,
        samples=samples,
        lr=RATE,
        until=until,
        seed=seed,
    )
    return student.double(), made


def train_family(
    sizes: Sequence[int], effort: Effort, *, shares: tuple[int, int] = (0, 1), **how: Any
) -> tuple[list[RecurrentStudent], list[Fit]]:
    """A student of every size; `shares` says which family of how many this is, for the bar."""
    number, of = shares
    students, fits = [], []
    for done, size in enumerate(sizes):
        student, made = train(size, seed=effort.seed, **how)
        students.append(student)
        fits.append(made)
        effort.tick(number * len(sizes) + done + 1, of * len(sizes))
    return students, fits


def curves_of(
    students: Sequence[RecurrentStudent],
    *,
    seed: int,
    target: Any = TARGET,
    steps: int = TESTED,
    betas: Sequence[float] = BETAS,
    norm: str = "sobolev",
    ball: str = "spectral",
    ascent: int = 0,
) -> FamilyReport:
    """E_m(beta) by the draws of the paper, in the norm and the ball of its text by default."""
    return memaudit.family(
        [memaudit.wrap(student, input_size=1) for student in students],
        target=target,
        betas=betas,
        draws=DRAWS,
        ascent=ascent,
        steps=steps,
        norm=norm,
        ball=ball,
        seed=seed,
    )


def shown(report: FamilyReport, *, least: float = 0.0) -> dict[str, tuple[Any, Any]]:
    """The curves by size from one beta on, as `drawing.lines` takes them."""
    from_here = report.betas >= least
    return {f"m = {m.size}": (report.betas[from_here], m.errors[from_here]) for m in report.members}


def seen(report: FamilyReport) -> tuple[str, str]:
    """The verdict of the crossings in the window that was measured, and the sentence behind it.

    The verdict of the report also asks whether the window is long enough for the slowest mode. The
    paper looks at t <= 10 and no further, and so does what it claims. Where a larger model is
    clearly worse before anything moves, nothing is approximated, and nothing can be stable.
    """
    lost = [str(m.size) for m in report.members if m.start >= report.scale]
    if lost:
        far = f"E(0) of m = {', '.join(lost)} is not below {report.scale:.2g}, the target's size"
        return "undetermined", f"no approximation: {far}"
    for small, large in pairwise(report.members):
        if large.start > LEAD * small.start:
            worse = f"E(0) is {large.start:.2g} for m = {large.size}, {small.start:.2g} for m ="
            return "undetermined", f"no approximation: {worse} {small.size}"
    first = float(report.betas[0])
    spans = [Span(c.beta, *c.interval, below=0 < c.beta <= first) for c in report.crossings]
    return trend(spans)


def told(name: str, report: FamilyReport) -> list[Number]:
    """What a family came to: verdict, errors at rest, crossings, errors at the largest beta."""

    def listed(values: Sequence[float]) -> str:
        return ", ".join(f"{value:.2g}" for value in values)

    verdict = seen(report)[0]
    longer = "" if report.verdict == verdict else f" (beyond the window: {report.verdict})"
    return [
        Number(f"{name}: verdict", verdict + longer),
        Number(f"{name}: E(0) by growing m", listed([m.start for m in report.members])),
        Number(f"{name}: crossings", listed([c.beta for c in report.crossings])),
        Number(
            f"{name}: E({report.betas[-1]:.2g}) by growing m",
            listed([m.errors[-1] for m in report.members]),
        ),
    ]
