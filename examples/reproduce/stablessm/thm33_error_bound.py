"""S-Thm3.3: behind a stable form, E(beta) <= E(0) + sum |c|/|f| g(beta)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from matplotlib.figure import Figure
from torch import Tensor

import memaudit
from examples.reproduce.drawing import lines, panels
from examples.reproduce.row import Effort, Number, Outcome, Row
from examples.reproduce.students import DiagonalStudent, fitted, form_of
from memaudit.interfaces import AbstractReparam
from memaudit.numerics.signals import seeded
from memaudit.targets import target

TARGET, STEPS = "poly:1.1", 200
SIZES = (2, 4, 8, 16)
BETAS = tuple(1e-3 * 4.0**k for k in range(6))
FORMS = {
    "continuous": ("exp", "softplus", "best", "heavytail"),
    "discrete": ("exp", "softplus", "best"),
}
#: Sums of a few hundred numbers in float64.
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """One model behind one form: E(beta) as found by ascent, and the bound of the theorem."""

    start: float
    errors: list[float]
    bounds: list[float]
    weight: float

    @property
    def share(self) -> float:
        """The largest part of the bound on E(beta) - E(0) that was found to be reached."""
        return share(self.errors, self.bounds, self.start)


def share(errors: list[float], bounds: list[float], start: float) -> float:
    """The largest part of what the bound allows beyond the error without a move."""
    return max((e - start) / (b - start) for e, b in zip(errors, bounds, strict=True))


def behind(plain: DiagonalStudent, name: str, time: str) -> DiagonalStudent:
    """The same model with its modes behind a form whose constants suit them."""
    modes = plain.modes().detach()
    lam = modes if time == "discrete" else modes.log()
    form: AbstractReparam = form_of(name, time=time).fitted(lam)
    made = DiagonalStudent(modes, reparam=form, time=time)
    with torch.no_grad():
        made.b.copy_(plain.b)
        made.c.copy_(plain.c)
    return made


def worst(student: DiagonalStudent, beta: float, goal: Tensor, generator: torch.Generator) -> float:
    """The largest |k - rho|_1 over moves of the raw weights with |w' - w|_2 <= beta, by ascent.

    From random moves and from each mode alone; a lower bound of the supremum.
    """
    raw, weights = student.raw.detach(), (student.b * student.c).detach()
    size, lags = len(raw), torch.arange(len(goal), dtype=torch.float64)
    alone = torch.cat([torch.eye(size, dtype=torch.float64), -torch.eye(size, dtype=torch.float64)])
    drawn = torch.randn(16, size, generator=generator, dtype=torch.float64)
    move = torch.cat([alone, drawn, torch.zeros(1, size, dtype=torch.float64)])
    move = beta * move / move.norm(dim=1, keepdim=True).clamp(min=1e-300)
    found = 0.0
    for _ in range(8):
        move.requires_grad_()
        rates = student.form.forward(raw + move)
        modes = rates if student.form.time == "discrete" else rates.exp()
        errors = ((weights[:, None] * modes[..., None] ** lags).sum(1) - goal).abs().sum(1)
        found = max(found, float(errors.detach().max()))
        (grad,) = torch.autograd.grad(errors.sum(), move)
        # The steepest move within the sphere; halfway to it, lest it jump to and fro.
        steep = beta * grad / grad.norm(dim=1, keepdim=True).clamp(min=1e-300)
        move = (0.5 * move + 0.5 * steep).detach()
        move = beta * move / move.norm(dim=1, keepdim=True).clamp(min=beta)
    return found


def curve(student: DiagonalStudent, generator: torch.Generator) -> Curve:
    """Found errors and bounds at every beta."""
    goal = target(TARGET).kernel(STEPS)
    with torch.no_grad():
        start = float((student.kernel(STEPS) - goal).abs().sum())
        # |c| / |f|: the sum over all time of a mode's part of the kernel.
        weight = float(((student.b * student.c).abs() / (1 - student.modes().abs())).sum())
    errors = [worst(student, beta, goal, generator) for beta in BETAS]
    bounds = [start + weight * student.form.modulus(beta) + ROUNDING for beta in BETAS]
    return Curve(start, errors, bounds, weight)


def by_library(students: dict[int, DiagonalStudent]) -> dict[int, list[float]]:
    """E(beta) of the recurrent weights as `memaudit.family` finds it, on bounded inputs."""
    members = [memaudit.wrap(student, input_size=1) for student in students.values()]
    told = {"target": TARGET, "betas": BETAS, "group": "recurrent", "ball": "frobenius"}
    report = memaudit.family(members, **told, norm="sup", steps=STEPS, draws=10, ascent=2)
    return {m: one.errors.tolist() for m, one in zip(students, report.members, strict=True)}


def run(effort: Effort) -> Outcome:
    """All forms and sizes, and what happens without a form."""
    generator = seeded(effort.seed)
    plain = {m: fitted(TARGET, m, steps=STEPS) for m in SIZES}
    kinds = [(time, name) for time, names in FORMS.items() for name in names]
    found: dict[tuple[str, str], dict[int, Curve]] = {}
    for number, (time, name) in enumerate(kinds):
        made = {m: behind(one, name, time) for m, one in plain.items()}
        found[time, name] = {m: curve(one, generator) for m, one in made.items()}
        effort.tick(number + 1, len(kinds) + 1)
    direct = {m: curve(one, generator) for m, one in plain.items()}
    shares = {kind: max(c.share for c in group.values()) for kind, group in found.items()}
    exp = found["discrete", "exp"]
    library = by_library({m: behind(one, "exp", "discrete") for m, one in plain.items()})
    agreed = max(share(library[m], exp[m].bounds, exp[m].start) for m in SIZES)
    lost = max(c.errors[-1] for c in direct.values())
    numbers = [
        Number(f"{name}, {time}: largest E(beta) - E(0) over its bound", share, "at most 1")
        for (time, name), share in shares.items()
    ]
    numbers += [
        Number("exp, discrete: the same for E(beta) by memaudit.family", agreed, "at most 1"),
        Number(f"direct: largest E({BETAS[-1]:.3g})", lost),
        Number(
            f"exp, discrete: largest E({BETAS[-1]:.3g})", max(c.errors[-1] for c in exp.values())
        ),
    ]
    numbers += [Number(f"sum |c|/|f| at m = {m}", c.weight) for m, c in exp.items()]
    return Outcome(
        holds=max(*shares.values(), agreed) <= 1.0,
        reason=f"over {len(kinds)} forms and m = {SIZES[0]} to {SIZES[-1]} the error grows by "
        f"at most {max(shares.values()):.3g} of the bound, while direct weights reach "
        f"{lost:.2g} at beta = {BETAS[-1]:.3g}; the sum |c|/|f|, which the theorem wants "
        f"bounded, goes from {exp[SIZES[0]].weight:.3g} to {exp[SIZES[-1]].weight:.3g}",
        numbers=tuple(numbers),
        settings={"target": TARGET, "m": SIZES, "betas": BETAS, "steps": STEPS, "ball": "L2 of w"},
        figure=_figure(found, direct),
    )


def _figure(found: dict[tuple[str, str], dict[int, Curve]], direct: dict[int, Curve]) -> Figure:
    figure, axes = panels("exp, discrete: E and its bound", "largest size, all forms", "direct")
    for colour, (m, one) in zip(
        ("C0", "C1", "C2", "C3"), found["discrete", "exp"].items(), strict=True
    ):
        lines(
            axes[0],
            {f"m = {m}": (BETAS, one.errors)},
            x="beta",
            y="E(beta)",
            logs="xy",
            color=colour,
        )
        axes[0].plot(BETAS, one.bounds, "--", color=colour, linewidth=1)
    largest = {f"{n}, {t}": (BETAS, g[SIZES[-1]].errors) for (t, n), g in found.items()}
    lines(axes[1], largest, x="beta", y="E(beta)", logs="xy")
    shown = {f"m = {m}": (BETAS, one.errors) for m, one in direct.items()}
    lines(axes[2], shown, x="beta", y="E(beta)", logs="xy")
    return figure


ROW = Row(
    id="S-Thm3.3",
    title="The error behind a stable form",
    claim="with a stable reparameterization E(beta) <= E(0) + sup(sum |c|/|f|) g(beta)",
    run=run,
)
