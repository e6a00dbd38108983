"""U-P3.11, U-P3.12 and U-Thm3.13: exponential convergence survives layers, its rate need not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

import memaudit
from examples.reproduce.drawing import lines, panels
from examples.reproduce.row import Effort, Number, Outcome, Row
from examples.reproduce.universal.stacks import Stack, random_stack

#: The layer y' = -SLOW y + x under x = 1 + exp(-t), whose distance to its limit is exp(-t).
SLOW, STEP, STEPS = 0.1, 0.25, 2401
RATES = (0.05, 0.09, 0.11, 0.5)
ACTIVATIONS = {
    "tanh": nn.Tanh(),
    "relu": nn.ReLU(),
    "gelu": nn.GELU(),
    "hardtanh": nn.Hardtanh(),
}
DEPTHS, WIDTH, RADIUS, HORIZON = (1, 2, 3, 4), 16, (0.7, 0.95), 512
#: exp(c0 t) |y - y*| counts as going to zero when its end is below this share of its largest.
VANISHED = 1e-2
#: The share of the slowest rate of a stack that is asked of its memory.
ASKED = 0.5


def layer_distance() -> tuple[Tensor, Tensor]:
    """t, and |y_t - y*|, by one matrix exponential a step.

    The distance d = y - 1/SLOW has d' = -SLOW d + exp(-t): without the limit nothing cancels.
    """
    joint = torch.tensor([[-SLOW, 1.0], [0.0, -1.0]], dtype=torch.float64)
    move = torch.linalg.matrix_exp(STEP * joint)
    state, found = torch.tensor([-1 / SLOW, 1.0], dtype=torch.float64), []
    for _ in range(STEPS):
        found.append(state[0])
        state = move @ state
    return STEP * torch.arange(STEPS, dtype=torch.float64), torch.stack(found).abs()


def closed_distance(t: Tensor) -> Tensor:
    """The same in closed form: y = 1/a - exp(-t)/(1-a) + (1/(1-a) - 1/a) exp(-a t)."""
    a = SLOW
    return (-torch.exp(-t) / (1 - a) + (1 / (1 - a) - 1 / a) * torch.exp(-a * t)).abs()


def vanishes(t: np.ndarray, distance: np.ndarray, rate: float) -> float:
    """exp(rate t) |distance| at the end, as a share of its largest value."""
    if len(distance) == 0 or distance[-1] == 0:
        return 0.0
    live = distance > 0
    weighted = rate * t[live] + np.log(distance[live])
    return float(math.exp(weighted[-1] - weighted.max()))


def activation_share() -> dict[str, float]:
    """Prop. 3.12: what is left at c0 = 0.5 of x_t = x* + exp(-t), the worst of all x*."""
    t = 0.05 * torch.arange(501, dtype=torch.float64)
    found = {}
    for name, function in {**ACTIVATIONS, "sqrt (not Lipschitz)": _root}.items():
        limits = torch.arange(-30, 31, dtype=torch.float64)[:, None] / 10
        distance = (function(limits + torch.exp(-t)) - function(limits)).abs()
        found[name] = max(vanishes(t.numpy(), d.numpy(), 0.5) for d in distance)
    return found


def _root(x: Tensor) -> Tensor:
    return x.sign() * x.abs().sqrt()


def stack_share(stack: Stack) -> tuple[float, np.ndarray]:
    """What is left of exp(c0 t) memory(t) at a share of the slowest rate, and the memory."""
    with torch.no_grad():
        slowest = max(float(layer.modes().abs().max()) for layer in stack.layers)
    subject = memaudit.wrap(stack, input_size=1)
    report = memaudit.scan(
        subject, horizon=HORIZON, queries=["heaviside"], probes=[], level="quick"
    )
    curve = report.memory["heaviside"]
    seen = np.flatnonzero(curve.values > 10 * curve.floor)
    last = int(seen[-1]) + 1 if len(seen) else 0
    rate = -math.log(slowest)
    share = vanishes(curve.lags[:last].astype(float), curve.values[:last], ASKED * rate)
    return share, np.where(np.arange(len(curve.values)) < last, curve.values, np.nan)


def stack_shares(effort: Effort) -> tuple[list[float], dict[str, np.ndarray]]:
    """Thm 3.13: what is left over random stacks, and the memories of those with tanh."""
    draw = torch.Generator().manual_seed(effort.seed)
    shares, curves = [], {}
    for depth in DEPTHS:
        for name, function in ACTIVATIONS.items():
            stack = random_stack(depth, width=WIDTH, radius=RADIUS, draw=draw, between=function)
            share, memory = stack_share(stack)
            shares.append(share)
            if name == "tanh":
                curves[f"{depth} layers"] = memory
            effort.tick(len(shares), len(DEPTHS) * len(ACTIVATIONS))
    return shares, curves


def run(effort: Effort) -> Outcome:
    """The counterexample, the activations, and random stacks."""
    t, distance = layer_distance()
    left = {rate: vanishes(t.numpy(), distance.numpy(), rate) for rate in RATES}
    same_rate = all(share < VANISHED for share in left.values())
    activations = activation_share()
    lipschitz = max(share for name, share in activations.items() if name in ACTIVATIONS)
    shares, curves = stack_shares(effort)
    numbers = [
        *(
            Number(f"3.11, c0 = {rate}: exp(c0 t)|y - y*| at t = 600 over its largest", share, 0)
            for rate, share in left.items()
        ),
        Number("3.11: trajectory against its closed form, relative", _off(t, distance)),
        *(Number(f"3.12, {name}: the same at c0 = 0.5", s, 0) for name, s in activations.items()),
        Number(f"3.13: largest share left over {len(shares)} random stacks", max(shares), 0),
    ]
    return Outcome(
        holds=same_rate and lipschitz < VANISHED and max(shares) < VANISHED,
        reason=f"x converges at every c0 < 1, y' = -0.1 y + x only at c0 < 0.1: at c0 = 0.5 the "
        f"product grows to the end (share {left[0.5]:.2g}), so 'the same c0' of Prop. 3.11 fails; "
        f"Prop. 3.12 holds for Lipschitz activations (share {lipschitz:.1e}), and the memory of "
        f"all {len(shares)} random stacks decays exponentially (Thm 3.13, share {max(shares):.1e})",
        numbers=tuple(numbers),
        settings=_settings(),
        figure=_figure(t.numpy(), distance.numpy(), curves),
        errata="the c0 of Prop. 3.11 is that of the slower of input and layer; Thm 3.13 only needs "
        "some c0 > 0, and holds for eigenvalues strictly inside the circle",
        # The erratum is about the c0 of 3.11 alone.
        explained=lipschitz < VANISHED and max(shares) < VANISHED,
    )


def _off(t: Tensor, distance: Tensor) -> float:
    return float((distance / closed_distance(t) - 1).abs().max())


def _settings() -> dict[str, Any]:
    return {
        "layer": "y' = -0.1 y + x, x = 1 + exp(-t)",
        "depths": DEPTHS,
        "width": WIDTH,
        "spectral radius": RADIUS,
        "c0 of the stacks": f"{ASKED} of the slowest rate",
    }


def _figure(t: np.ndarray, distance: np.ndarray, curves: dict[str, np.ndarray]) -> Figure:
    figure, (one, many) = panels("y' = -0.1 y + x, x = 1 + exp(-t)", "random tanh stacks")
    told = {f"c0 = {rate}": (t, np.exp(rate * t) * distance) for rate in RATES}
    lines(one, told, x="t", y="exp(c0 t) |y - y*|", logs="y")
    one.set_xlim(0, 150)
    one.set_ylim(1e-4, 1e8)
    shown = {name: (np.arange(len(c)), c) for name, c in curves.items()}
    lines(many, shown, x="lag", y="memory (step input)", logs="y")
    return figure


ROW = Row(
    id="U-P3.11/12, Thm3.13",
    title="Exponential convergence through layers",
    claim="exponential convergence survives a layer with the same c0 (3.11) and an activation "
    "(3.12); so the memory of a stack decays exponentially (3.13)",
    run=run,
)
