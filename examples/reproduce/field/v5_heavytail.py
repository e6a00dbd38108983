"""V-5: heavytail against softplus when the recurrent weights learn fast."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure

from examples.reproduce.drawing import lines, panels
from examples.reproduce.row import Effort, Number, Outcome, Row
from examples.reproduce.students import DiagonalStudent, fit
from memaudit.numerics.signals import seeded

FORMS = ("softplus", "heavytail")
RATES = {"adam": (0.1, 1.0, 3.0), "sgd": (1.0, 10.0, 100.0)}
MODES, OTHERS = 8, 0.01
Table = dict[tuple[str, float, str], float]
#: A loss this many times the smallest so far is a spike.
SPIKE = 10.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How one run ended: its last loss, its spikes, and whether a loss was no number."""

    loss: float
    spikes: int
    diverged: bool


def trained(form: str, optimizer: str, lr: float, *, updates: int, batch: int, seed: int) -> Ended:
    """One run on (t+1)^-1.1; `lr` is that of the recurrent weights alone."""
    modes = 1.0 - 1.0 / torch.logspace(np.log10(1.2), 2.0, MODES, dtype=torch.float64)
    student = DiagonalStudent(modes, reparam=form, time="continuous", generator=seeded(seed))
    groups = [
        {"params": [student.raw], "lr": lr},
        {"params": [student.b, student.c], "lr": OTHERS},
    ]
    plan = {"updates": updates, "batch": batch, "lr": None, "groups": groups, "seed": seed}
    done = fit(student, "poly:1.1", optimizer=optimizer, **plan)
    best = np.minimum.accumulate(done.losses)
    above = done.losses[1:] > SPIKE * best[:-1]
    # A stretch of large losses is one spike.
    spikes = int((above[1:] & ~above[:-1]).sum() + above[:1].sum())
    return Ended(done.last, spikes, done.diverged_at is not None)


def runs(
    effort: Effort, seeds: int, *, updates: int, batch: int
) -> dict[tuple[str, float, str], list[Ended]]:
    """All runs, by optimizer, learning rate and form."""
    cases = [(o, lr, f) for o, rates in RATES.items() for lr in rates for f in FORMS]
    found = {}
    for number, (optimizer, lr, form) in enumerate(cases):
        found[optimizer, lr, form] = [
            trained(form, optimizer, lr, updates=updates, batch=batch, seed=10 * effort.seed + k)
            for k in range(seeds)
        ]
        effort.tick(number + 1, len(cases))
    return found


def told(losses: Table, spikes: Table, broken: Table, seeds: int) -> list[Number]:
    """The numbers of every case."""
    found = []
    for optimizer, lr, form in losses:
        key, name = (optimizer, lr, form), f"{optimizer}, {lr:g}, {form}"
        found.append(Number(f"{name}: last loss, median", losses[key]))
        found.append(Number(f"{name}: spikes in {seeds} runs", spikes[key]))
        found.append(Number(f"{name}: diverged of {seeds}", broken[key]))
    return found


def won(losses: Table, high: dict[str, tuple[float, ...]]) -> dict[str, int]:
    """At how many of these learning rates heavytail ends with no larger loss, by optimizer."""
    return {
        o: sum(losses[o, lr, "heavytail"] <= losses[o, lr, "softplus"] for lr in rates)
        for o, rates in high.items()
    }


def run(effort: Effort) -> Outcome:
    """Two optimizers, several learning rates, several seeds."""
    updates, batch, seeds = effort.pick(quick=(200, 32, 5), full=(300, 512, 10))
    found = runs(effort, seeds, updates=updates, batch=batch)
    losses = {key: float(np.median([e.loss for e in group])) for key, group in found.items()}
    spikes = {key: sum(e.spikes for e in group) for key, group in found.items()}
    broken = {key: sum(e.diverged for e in group) for key, group in found.items()}
    numbers = told(losses, spikes, broken, seeds)
    high = {o: rates[-2:] for o, rates in RATES.items()}
    better = won(losses, high)
    top = [(o, lr) for o, rates in high.items() for lr in rates]
    leaps = {f: sum(spikes[o, lr, f] for o, lr in top) for f in FORMS}
    lost = {f: sum(broken[o, lr, f] for o, lr in top) for f in FORMS}
    trouble = {
        (o, f): sum(spikes[o, lr, f] + broken[o, lr, f] for lr in high[o])
        for o in RATES
        for f in FORMS
    }
    calmer = all(trouble[o, "heavytail"] <= trouble[o, "softplus"] for o in RATES)
    return Outcome(
        holds=calmer and all(count == 2 for count in better.values()),
        reason="at the two highest learning rates heavytail ends with the smaller loss at "
        + ", ".join(f"{n} of 2 ({o})" for o, n in better.items())
        + f"; there {lost['heavytail']} of its {seeds * len(top)} runs diverge, with "
        f"{leaps['heavytail']} spikes in all, against {lost['softplus']} and {leaps['softplus']} "
        "of softplus. More stable is meant to be both: no larger loss, and no more spikes and "
        "divergences together",
        numbers=tuple(numbers),
        settings={
            "m": MODES,
            "T": 100,
            "updates": updates,
            "batch": batch,
            "seeds": seeds,
            "lr of b, c": OTHERS,
        },
        figure=_figure(losses),
        scaled=effort.pick(quick="200 updates of 32 sequences, not 300 of 512; 5 seeds", full=""),
    )


def _figure(losses: dict[tuple[str, float, str], float]) -> Figure:
    figure, axes = panels("Adam", "plain gradient descent")
    for at, (optimizer, rates) in zip(axes, RATES.items(), strict=True):
        curves = {
            form: (rates, [min(losses[optimizer, lr, form], 1e3) for lr in rates]) for form in FORMS
        }
        told = {"x": "learning rate of the recurrent weights", "y": "last loss"}
        lines(at, curves, **told, logs="xy", marker="o", markersize=4)
    return figure


ROW = Row(
    id="V-5",
    title="heavytail against softplus",
    claim="at a high learning rate heavytail trains more stably than softplus",
    run=run,
)
