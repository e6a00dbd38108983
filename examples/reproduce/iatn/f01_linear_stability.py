"""I-F1: linear RNNs approximate 0.9^t stably, and (t+1)^-1.1 not."""

from __future__ import annotations

import math

from matplotlib.figure import Figure

import memaudit
from examples.reproduce.drawing import lines, panels
from examples.reproduce.row import Effort, Number, Outcome, Row
from examples.reproduce.students import fitted
from memaudit.families.result import FamilyReport

SIZES = (2, 4, 6, 8, 14)
BETAS = tuple(5e-4 * 2.0**k for k in range(21))
#: Name → target, and the largest mode of its fits.
TARGETS = {"0.9^t": ("exp:0.9", 0.95), "(t+1)^-1.1": ("poly:1.1", 1.0)}
#: The paper looks at t = 1 … 100. Only beyond 318 steps is the slowest mode of the largest fit to
#: (t+1)^-1.1 seen to decay, and before that the curves say nothing about it.
PAPER_STEPS, STEPS = 100, 400


def family(target: str, *, largest: float, steps: int, seed: int) -> FamilyReport:
    """E_m(beta) of the least-squares fits of a target, by the draws of the paper."""
    members = [
        memaudit.wrap(fitted(target, m, largest=largest, steps=steps), input_size=1) for m in SIZES
    ]
    told = {"draws": 10, "ascent": 0, "norm": "sup", "seed": seed}
    return memaudit.family(members, target=target, betas=BETAS, steps=steps, **told)


def curves(report: FamilyReport) -> dict[str, tuple[list[float], list[float]]]:
    """The curves by size, as they are drawn."""
    return {f"m = {m.size}": (report.betas.tolist(), m.errors.tolist()) for m in report.members}


def run(effort: Effort) -> Outcome:
    """Both families over more steps than in the paper, where they differ, and over its own."""
    found: dict[tuple[int, str], FamilyReport] = {}
    for steps in (STEPS, PAPER_STEPS):
        for name, (target, largest) in TARGETS.items():
            asked = {"largest": largest, "steps": steps, "seed": effort.seed}
            found[steps, name] = family(target, **asked)
            effort.tick(len(found), 2 * len(TARGETS))
    short = "; ".join(_told(found, PAPER_STEPS, name) for name in TARGETS)
    verdicts = tuple(found[STEPS, name].verdict for name in TARGETS)
    return Outcome(
        holds=verdicts == ("stable", "unstable"),
        reason=f"over {STEPS} steps {'; '.join(_told(found, STEPS, name) for name in TARGETS)}. "
        f"Over the {PAPER_STEPS} of the paper {short}",
        numbers=_numbers(found),
        settings={
            "m": SIZES,
            "betas": len(BETAS),
            "draws": 10,
            "steps": [STEPS, PAPER_STEPS],
            "norm": "sup",
        },
        figure=_figure(found),
        # More steps, not fewer; but the claim is not shown at the settings of the paper.
        scaled=f"judged over {STEPS} steps instead of the paper's {PAPER_STEPS}, over which "
        + ", ".join(f"{name} is {found[PAPER_STEPS, name].verdict}" for name in TARGETS),
    )


def _told(found: dict[tuple[int, str], FamilyReport], steps: int, name: str) -> str:
    report = found[steps, name]
    return f"{name} is {report.verdict} ({report.reason})"


def _figure(found: dict[tuple[int, str], FamilyReport]) -> Figure:
    """Both panels of the paper, and the second one over its own steps."""
    shown = list(found)[:2] + list(found)[3:]
    figure, axes = panels(*(f"{name}, {steps} steps" for steps, name in shown))
    for at, key in zip(axes, shown, strict=True):
        lines(at, curves(found[key]), x="beta", y="E_m(beta)", logs="xy")
        at.set_xlim(BETAS[0], 1.0)
        at.set_ylim(1e-2, 1e6)
    return figure


def _numbers(found: dict[tuple[int, str], FamilyReport]) -> tuple[Number, ...]:
    """Verdicts and crossings."""
    numbers = []
    for (steps, name), report in found.items():
        which = f"{name}, {steps} steps"
        numbers.append(Number(f"{which}: verdict", report.verdict))
        for c in report.crossings:
            where = float(c.beta) if math.isfinite(c.beta) else "none"
            numbers.append(Number(f"{which}: crossing of m = {c.smaller} and {c.larger}", where))
    return tuple(numbers)


ROW = Row(
    id="I-F1a/b",
    title="Linear RNNs and two kernels",
    claim="for 0.9^t a stability radius exists; for (t+1)^-1.1 the crossings shift left",
    run=run,
)
