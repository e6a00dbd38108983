"""I-F3: of random teachers, those that are approximated stably have exponential memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

import memaudit
from examples.reproduce.drawing import lines, panels
from examples.reproduce.iatn.trained import (
    BATCH,
    EPOCH,
    EPOCHS,
    RATE,
    SAMPLES,
    STEP,
    TESTED,
    curves_of,
    seen,
    shown,
    train_family,
)
from examples.reproduce.row import Effort, Number, Outcome, Row
from examples.reproduce.students import RecurrentStudent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from memaudit.families.result import FamilyReport
    from memaudit.memory.result import Curve

#: W = SPREAD · G / sqrt(m) - shift · I has its rightmost eigenvalue at about SPREAD - shift.
STATES, SPREAD = 256, 0.5
#: Shifts are spread over this range: from teachers that never settle to such that soon forget.
SHIFTS = (0.1, 1.5)
#: A teacher counts as approximated when the largest student errs by less than this share of it.
CLOSE = 0.1
HORIZON = 600


@dataclass(frozen=True, slots=True)
class Tried:
    """A teacher, what is known of its memory, and how it was approximated."""

    shift: float
    memory: Curve
    report: FamilyReport

    @property
    def error(self) -> float:
        """E(0) of the largest student, as a share of the teacher."""
        return self.report.members[-1].start / self.report.scale

    @property
    def kept(self) -> bool:
        """Whether the filter of the paper lets it through."""
        return self.error < CLOSE and seen(self.report)[0] == "stable"


def teacher(shift: float, draw: torch.Generator) -> RecurrentStudent:
    """A random tanh RNN with 256 states."""
    made = RecurrentStudent(STATES, step=STEP, generator=draw)
    with torch.no_grad():
        noise = torch.randn(STATES, STATES, generator=draw, dtype=torch.float64)
        made.W.copy_(SPREAD * noise / STATES**0.5 - shift * torch.eye(STATES))
        made.c.mul_(STATES**0.5)  # of order one: smaller answers drown in the noise of Adam
    return made.requires_grad_(requires_grad=False)


def tried(shift: float, number: int, of: int, draw: torch.Generator, effort: Effort) -> Tried:
    """Ask for the memory of a teacher, teach students of growing size, and move their weights."""
    model = teacher(shift, draw)
    scanned = memaudit.scan(
        memaudit.wrap(model, input_size=1),
        horizon=HORIZON,
        queries=["heaviside"],
        probes=[],
        amplitudes=[1.0],
        level="quick",
        seed=effort.seed,
    )
    sizes = effort.pick(quick=(4, 8, 16), full=(4, 8, 16, 32, 64))
    students, _ = train_family(
        sizes,
        effort,
        shares=(number, of),
        target=in_single(model),
        updates=effort.pick(quick=10, full=EPOCHS) * EPOCH,
        samples=effort.pick(quick=SAMPLES // 10, full=SAMPLES),
    )
    report = curves_of(students, seed=effort.seed, target=lambda u: model(u).detach())
    return Tried(shift, scanned.memory["heaviside"], report)


def in_single(model: RecurrentStudent) -> Callable[[torch.Tensor], torch.Tensor]:
    """Its answers in single precision, which is what students are trained in."""
    copy = RecurrentStudent(STATES, step=STEP, generator=torch.Generator()).float()
    copy.load_state_dict(model.state_dict())
    copy.requires_grad_(requires_grad=False)
    return lambda u: copy(u.float())


def told(item: Tried) -> list[Number]:
    """The filter and the memory of one teacher."""
    name = f"teacher with shift {item.shift:.2f}"
    word = "kept" if item.kept else "filtered out"
    found = f"{word} (E(0) {item.error:.3f} of the answers, curves {seen(item.report)[0]})"
    return [Number(f"{name}: filter", found), Number(f"{name}: memory", str(item.memory.decay))]


def run(effort: Effort) -> Outcome:
    """Filter the teachers, and look at the memories of those that remain."""
    draw = torch.Generator().manual_seed(effort.seed)
    count = effort.pick(quick=4, full=12)
    shifts = torch.linspace(*SHIFTS, count).tolist()
    found = [tried(shift, k, count, draw, effort) for k, shift in enumerate(shifts)]
    kept = [item for item in found if item.kept]
    near = [item.memory.decay.kind for item in found if item.error < CLOSE]
    wrong = [item for item in kept if item.memory.decay.kind != "exponential"]
    gone = _kinds([item for item in found if not item.kept])
    return Outcome(
        holds=bool(kept) and not wrong,
        reason=f"of {count} teachers {len(kept)} are approximated stably (shift and memory: "
        f"{_kinds(kept)}); filtered out: {gone}; approximated, stably or not: {len(near)}"
        + ("" if kept else "; with none left the filter shows nothing"),
        numbers=(
            Number("teachers that pass the filter", len(kept)),
            Number("approximated, stably or not", ", ".join(near) or "none"),
            *(number for item in found for number in told(item)),
        ),
        settings={
            "teachers": f"tanh RNN, m = {STATES}, W = {SPREAD} G / sqrt(m) - shift I, c ~ N(0, 1)",
            "students": f"tanh RNN, Adam {RATE}, batch {BATCH}, t <= 3.2, tested over t <= 10",
            "filter": f"E(0) of the largest below {CLOSE} of the answers, crossings stay put",
            "memory": f"Heaviside, |x| = 1, {HORIZON} steps of {STEP}",
            "steps": TESTED,
        },
        figure=_figure(found, (kept or found)[-1]),
        scaled=effort.pick(
            quick="4 teachers, students m = 4, 8, 16, 1000 updates on 1280 samples", full=""
        ),
    )


def _kinds(items: list[Tried]) -> str:
    return ", ".join(f"{i.shift:.2f} {i.memory.decay.kind}" for i in items) or "none"


def _figure(found: list[Tried], example: Tried) -> Figure:
    figure, axes = panels(
        f"students of the teacher with shift {example.shift:.2f}", "memory of the teachers"
    )
    lines(axes[0], shown(example.report), x="beta", y="E_m(beta)", logs="xy")
    for item in found:
        style = {"linestyle": "-" if item.kept else "--"}
        label = f"shift {item.shift:.2f}, {'kept' if item.kept else 'filtered out'}"
        curve = {label: (item.memory.lags * STEP, item.memory.values)}
        lines(axes[1], curve, x="t", y="memory", logs="y", **style)
    axes[1].set_ylim(bottom=1e-12)
    return figure


ROW = Row(
    id="I-F3",
    title="Random teachers, filtered by stability",
    claim="teachers that are stably approximated by RNNs have exponential memory",
    run=run,
)
