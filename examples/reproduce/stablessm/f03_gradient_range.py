"""S-F3: gradient over weight while a state-space model learns a polynomial memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from examples.reproduce.drawing import lines, panels
from examples.reproduce.row import Effort, Number, Outcome, Row
from examples.reproduce.students import DiagonalStudent, fit
from memaudit.numerics.signals import seeded

FORMS = ("direct", "relu", "exp", "softplus", "tanh", "best")
MODES = 16


@dataclass(frozen=True, slots=True, eq=False)
class Watched:
    """The smallest and largest |gradient| / |weight| of every update, and the last loss."""

    smallest: np.ndarray
    largest: np.ndarray
    loss: float

    @property
    def typical(self) -> float:
        """The largest ratio among the modes, in the median over the updates."""
        return float(np.median(self.largest))


def starts() -> dict[str, Tensor]:
    """Modes to begin with. The paper gives none: time scales of 3 to 100 steps, or a ladder.

    None of them is behind any form at w = 0, where the ratio means nothing.
    """
    made = {"dtype": torch.float64}
    return {
        "time scales": 1.0 - 1.0 / torch.logspace(np.log10(3.0), 2.0, MODES, **made),
        "ladder": torch.linspace(0.05, 0.95, MODES, **made),
    }


def trained(modes: Tensor, form: str, *, batch: int, updates: int, seed: int) -> Watched:
    """One run: tanh at the readout, Adam, fresh inputs."""
    student = DiagonalStudent(modes, reparam=form, activation="tanh", generator=seeded(seed))
    ends: list[tuple[float, float]] = []

    def watch(update: int, loss: float, model: nn.Module) -> None:
        raw = model.raw
        ratio = raw.grad.abs() / raw.detach().abs().clamp(min=1e-30)
        ends.append((float(ratio.min()), float(ratio.max())))

    done = fit(student, "poly:1.1", updates=updates, batch=batch, lr=0.01, seed=seed, watch=watch)
    small, large = np.array(ends).T
    return Watched(small, large, done.last)


def all_runs(effort: Effort, *, batch: int, updates: int) -> dict[str, dict[str, Watched]]:
    """Every form from both starts."""
    found: dict[str, dict[str, Watched]] = {}
    for place, modes in starts().items():
        found[place] = {}
        for form in FORMS:
            plan = {"batch": batch, "updates": updates, "seed": effort.seed}
            found[place][form] = trained(modes, form, **plan)
            effort.tick(len(found) * len(FORMS) - len(FORMS) + len(found[place]), 2 * len(FORMS))
    return found


def run(effort: Effort) -> Outcome:
    """Every form from the same modes, twice."""
    # 153600 samples in batches of 512 are 300 updates.
    batch, updates = effort.pick(quick=64, full=512), 300
    found = all_runs(effort, batch=batch, updates=updates)
    typical = {p: {f: w.typical for f, w in group.items()} for p, group in found.items()}
    peaks = {p: {f: float(w.largest.max()) for f, w in group.items()} for p, group in found.items()}
    least = {p: min(group, key=lambda f: group[f]) for p, group in typical.items()}
    calm = {p: min(group, key=lambda f: group[f]) for p, group in peaks.items()}
    numbers = [
        Number(f"{place}, {form}: {told}", value[place][form])
        for place in found
        for form in FORMS
        for told, value in (("largest ratio, median over updates", typical), ("its peak", peaks))
    ]
    numbers += [
        Number(f"{p}, {f}: last loss", w.loss) for p, g in found.items() for f, w in g.items()
    ]
    second = {p: sorted(group.values())[1] / group["best"] for p, group in typical.items()}
    return Outcome(
        holds=all(name == "best" for name in (*least.values(), *calm.values())),
        reason="the smallest largest |gradient|/|weight| in the median over the run is that of "
        + ", ".join(
            f"{least[p]} ({p}; the next is {second[p]:.2g} times that of best)" for p in found
        )
        + "; the smallest peak that of "
        + ", ".join(f"{calm[p]} ({p})" for p in found),
        numbers=tuple(numbers),
        settings={
            "m": MODES,
            "T": 100,
            "lr": 0.01,
            "optimizer": "adam",
            "batch": batch,
            "updates": updates,
        },
        figure=_figure(found),
        scaled=effort.pick(quick=f"batches of {batch} instead of 512", full=""),
    )


def _figure(found: dict[str, dict[str, Watched]]) -> Figure:
    figure, axes = panels(*(f"start: {place}" for place in found))
    for at, group in zip(axes, found.values(), strict=True):
        curves = {f: (range(len(w.largest)), w.largest.clip(1e-6)) for f, w in group.items()}
        lines(at, curves, x="update", y="largest |gradient| / |weight|", logs="y")
        at.set_ylim(1e-3, 1e4)
    return figure


ROW = Row(
    id="S-F3",
    title="Gradient over weight in training",
    claim="from the same eigenvalues, best has the smallest gradient over weight in training",
    run=run,
)
