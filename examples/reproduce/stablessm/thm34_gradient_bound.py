"""S-Thm3.4: the gradient of a recurrent weight is at most C |f'| / f²."""

from __future__ import annotations

from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from examples.reproduce.drawing import lines, panels
from examples.reproduce.row import Effort, Number, Outcome, Row
from examples.reproduce.students import DiagonalStudent
from memaudit.numerics.signals import seeded
from memaudit.targets import target

#: Every form that reaches all modes below; in continuous time best needs rates below 1/b = 2.
FORMS = {
    "continuous": ("direct", "relu", "exp", "softplus", "best", "heavytail"),
    "discrete": ("direct", "relu", "exp", "softplus", "tanh", "best"),
}
#: Continuous time goes by in steps of this size. The sum over steps of h t e^{-rt} is below its
#: integral 1/r², so the bound must hold without any allowance.
STEP = {"continuous": 0.05, "discrete": 1.0}
#: Gradients of the same number by different chains of float64 operations.
EQUAL = 1e-8


def gradients(student: DiagonalStudent, goal: Tensor, loss: str, u: Tensor) -> Tensor:
    """|dLoss/dw| of every mode: the norm of the theorem, or the error of training."""
    h = student.step_size
    if loss == "sup":
        found = h * (student.kernel(len(goal)) - goal).abs().sum()
    else:
        wanted = target("poly:1.1").answer(u)
        found = (student(u) - wanted).square().mean()
    (grad,) = torch.autograd.grad(found, student.raw)
    return grad.abs()


def instance(time: str, size: int, loss: str, generator: torch.Generator) -> dict[str, Tensor]:
    """Form → |dLoss/dw| and |c f'| / f² (2,m) of every mode, for one random model."""
    h = STEP[time]
    made: dict[str, Any] = {"generator": generator, "dtype": torch.float64}
    modes = torch.exp(-h * (0.02 + 1.5 * torch.rand(size, **made)))
    b, c = torch.randn(size, **made), torch.randn(size, **made)
    u = torch.randn(8, 100, 1, **made)
    # The kernel over all steps that a mode of rate 0.02 needs, as (t + 1)^-1.1 in that time.
    goal = (h * torch.arange(int(1500 / h), dtype=torch.float64) + 1.0) ** -1.1
    found = {}
    for name in FORMS[time]:
        activation = "linear" if loss == "sup" else "tanh"
        student = DiagonalStudent(modes, reparam=name, time=time, step=h, activation=activation)
        with torch.no_grad():
            student.b.copy_(b)
            student.c.copy_(c)
        bound = (b * c).abs() * student.form.gradient_scale(student.raw.detach())
        found[name] = torch.stack([gradients(student, goal, loss, u), bound])
    return found


def one_sided(time: str, mode: float) -> float:
    """The same ratio of a single mode held against nothing: the bound is reached then."""
    h = STEP[time]
    student = DiagonalStudent(
        torch.tensor([mode], dtype=torch.float64), reparam="direct", time=time, step=h
    )
    with torch.no_grad():
        student.b.fill_(1.0)
        student.c.fill_(1.0)
    zero = torch.zeros(int(2000 / h), dtype=torch.float64)
    grad = gradients(student, zero, "sup", zero)
    return float(grad[0] / student.form.gradient_scale(student.raw.detach())[0])


def apart(found: dict[str, Tensor]) -> float:
    """How far the constants C of different forms are apart, as a share."""
    table = torch.stack([grad / bound for grad, bound in found.values()])
    largest = table.amax(0).clamp(min=1e-300)
    return float(((table.amax(0) - table.amin(0)) / largest).max())


def ratios(largest: dict[str, float], reached: dict[str, float]) -> list[Number]:
    """Gradients over the bound with C = |c|."""
    random = "largest |dLoss/dw| / (|c f'| / …²) of random models"
    single = "the same of one mode 0.9 against nothing"
    return [
        Number(f"{time}: {name}", value, "at most 1")
        for name, group in ((random, largest), (single, reached))
        for time, value in group.items()
    ]


def run(effort: Effort) -> Outcome:
    """Random models and forms: is the constant one, and is it at most |c|?"""
    generator = seeded(effort.seed)
    kinds = [(time, loss) for time in FORMS for loss in ("sup", "mse")]
    count = 10
    found = {
        kind: [instance(kind[0], 16, kind[1], generator) for _ in range(count)] for kind in kinds
    }
    spread = {kind: max(apart(one) for one in group) for kind, group in found.items()}
    largest = {
        time: max(float((g / most).max()) for one in found[time, "sup"] for g, most in one.values())
        for time in FORMS
    }
    reached = {time: one_sided(time, 0.9) for time in FORMS}
    negative = one_sided("discrete", -0.9)
    numbers = [
        Number(f"{t}, {_told(loss)}: largest spread of C over the forms", v)
        for (t, loss), v in spread.items()
    ]
    numbers += ratios(largest, reached)
    numbers.append(Number("discrete: the same of one mode -0.9", negative, "at most 1"))
    holds = max(spread.values()) < EQUAL and max(*largest.values(), *reached.values()) <= 1 + EQUAL
    return Outcome(
        holds=holds,
        reason=f"one C serves all forms (they differ by {max(spread.values()):.1g}); with C = |c| "
        f"the bound holds on {count} random models in each time (largest ratio "
        f"{largest['continuous']:.2f} and {largest['discrete']:.2f}) and is reached by a single "
        f"mode ({reached['discrete']:.6f}). For negative discrete modes C = |c| is too small: a "
        f"mode at -0.9 is {negative:.0f} times beyond it",
        numbers=tuple(numbers),
        settings={"modes": 16, "models": count, "steps of continuous time": STEP["continuous"]},
        figure=_figure(found),
        errata="the discrete proof, (91) to (93), sums f^k where |f|^k belongs: with negative "
        "modes, which tanh and best have, the bound is |c f'| / (1 - |f|)²",
    )


def _told(loss: str) -> str:
    return "sup norm" if loss == "sup" else "mean square, tanh readout"


def _figure(found: dict[tuple[str, str], list[dict[str, Tensor]]]) -> Figure:
    figure, axes = panels("continuous time", "discrete time")
    for at, time in zip(axes, FORMS, strict=True):
        for name in FORMS[time]:
            grad, bound = torch.cat([one[name] for one in found[time, "sup"]], dim=1)
            at.plot(bound, grad, ".", markersize=3, label=name)
        ends = [1e-4, 1e4]
        lines(at, {"bound": (ends, ends)}, x="|c f'| / f² or /(1-f)²", y="|dLoss/dw|", logs="xy")
    return figure


ROW = Row(
    id="S-Thm3.4",
    title="Gradients and parameterizations",
    claim="|dLoss/dw| <= C |f'|/f² (discrete: |f'|/(1-f)²) with a C that does not depend on f",
    run=run,
)
