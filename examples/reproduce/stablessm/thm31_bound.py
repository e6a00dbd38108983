"""S-Thm3.1: what is approximated stably has a memory below (d+1) L0 theta² e^{-beta t}."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import memaudit
from examples.exact_error import radius_direct
from examples.reproduce.drawing import lines, panels
from examples.reproduce.row import Effort, Number, Outcome, Row
from examples.reproduce.stablessm.shallow import ShallowSSM
from memaudit.numerics.signals import seeded

#: Steps of continuous time, and how many are looked at: three time scales of the slowest mode.
STEP, LAGS = 0.05, 600
#: The largest slope of tanh.
LIPSCHITZ = 1.0
#: Differences of numbers of size one in float64.
ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """A random model: its measured memory at every time, and the bound of the theorem."""

    inputs: int
    radius: float
    rate: float | None
    memory: np.ndarray
    bound: np.ndarray

    @property
    def share(self) -> float:
        """The largest share of the bound that the memory takes."""
        return float(((self.memory - ROUNDING) / self.bound).max())


def instance(m: int, d: int, generator: torch.Generator) -> Instance:
    """dh/dt = Lambda h + U x + b, y = c tanh(h), with the radius min(-lambda) of its rates."""
    made: dict[str, Any] = {"generator": generator, "dtype": torch.float64}
    slowest = 10.0 ** float(torch.rand(1, **made) - 1.0)
    rates = -slowest - 2.0 * torch.rand(m, **made)
    rates[0] = -slowest
    size = float(torch.rand(1, **made)) * 3.0
    U, b, c = (size * torch.randn(*shape, **made) / m**0.5 for shape in ((m, d), (m,), (1, m)))  # noqa: N806
    theta = max(float(torch.linalg.matrix_norm(w, ord=2)) for w in (U, b[:, None], c))
    theta = max(theta, float(rates.abs().max()))
    model = ShallowSSM.held(rates, U, b, c, step=STEP)
    report = memaudit.scan(
        memaudit.wrap(model, input_size=d),
        horizon=LAGS,
        queries=["heaviside"],
        probes=[],
        level="quick",
        normalization="stablessm",
    )
    curve = report.memory["heaviside"]
    radius = radius_direct(rates.numpy(), time="continuous")
    # A change over a step is the mean of the derivative over it: at most the bound at its start.
    bound = (d + 1) * LIPSCHITZ * theta**2 * np.exp(-radius * STEP * curve.lags)
    rate = None if curve.decay.rate is None else curve.decay.rate / STEP
    return Instance(d, radius, rate, curve.values / STEP, bound)


def run(effort: Effort) -> Outcome:
    """Random models of several sizes: the share of the bound that they reach."""
    generator = seeded(effort.seed)
    plan = [(m, d) for m in (4, 16, 64) for d in (1, 2, 4)] * effort.pick(quick=4, full=40)
    found = []
    for number, (m, d) in enumerate(plan):
        found.append(instance(m, d, generator))
        effort.tick(number + 1, len(plan))
    shares = [one.share for one in found]
    excess = [one.rate / one.radius for one in found if one.rate is not None]
    slow = min(excess, default=math.inf)
    figure, (left, right) = panels("memory and its bound", "rate and radius")
    for colour, one in zip(("C0", "C1", "C2"), found[:3], strict=True):
        t = (STEP * np.arange(len(one.memory))).tolist()
        told = f"d = {one.inputs}, radius {one.radius:.2g}"
        lines(left, {told: (t, one.memory.clip(1e-16))}, x="t", y="M(t)", logs="y", color=colour)
        left.plot(t, one.bound, "--", color=colour, linewidth=1)
    seen = [one for one in found if one.rate is not None]
    right.plot([one.radius for one in seen], [one.rate for one in seen], ".", label="models")
    ends = [0.1, 1.0]
    lines(right, {"rate = radius": (ends, ends)}, x="radius", y="measured rate", logs="xy")
    return Outcome(
        holds=max(shares) <= 1.0,
        reason=f"on {len(found)} random models the memory takes at most {max(shares):.2g} of the "
        f"bound at any time; the rates fitted over the window are {slow:.2g} radii or more",
        numbers=(
            Number("models", len(found)),
            Number("largest memory over bound", max(shares), "at most 1"),
            Number("median over models of the largest memory over bound", float(np.median(shares))),
            Number("smallest fitted rate over radius", slow),
            Number("median of the fitted rate over radius", float(np.median(excess))),
        ),
        settings={"m": [4, 16, 64], "d": [1, 2, 4], "step": STEP, "lags": LAGS, "act": "tanh"},
        figure=figure,
    )


ROW = Row(
    id="S-Thm3.1",
    title="The bound on memory",
    claim="a model with the stability radius beta has M(t) <= (d+1) L0 theta² e^{-beta t}",
    run=run,
)
