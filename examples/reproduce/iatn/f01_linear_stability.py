"""I-F1: linear RNNs approximate 0.9^t stably, and (t+1)^-1.1 not."""

from __future__ import annotations

import memaudit
from examples.reproduce.drawing import lines, panels
from examples.reproduce.row import Effort, Number, Outcome, Row
from memaudit.results import FamilyReport
from memaudit.students import fitted

SIZES = (2, 4, 6, 8, 14)
BETAS = tuple(5e-4 * 2.0**k for k in range(21))
#: Beyond this the slowest mode of the largest fit to (t+1)^-1.1 is seen to decay (318 steps).
STEPS = 400


def family(target: str, *, largest: float, steps: int, reparam: str = "direct") -> FamilyReport:
    """E_m(beta) of the least-squares fits of a target, by the draws of the paper."""
    members = [
        memaudit.wrap(
            fitted(target, m, largest=largest, steps=steps, reparam=reparam), input_size=1
        )
        for m in SIZES
    ]
    return memaudit.family(
        members, target=target, betas=BETAS, draws=10, ascent=0, steps=steps, norm="sup"
    )


def curves(report: FamilyReport) -> dict[str, tuple[list[float], list[float]]]:
    """The curves by size, as they are drawn."""
    return {f"m = {m.size}": (report.betas.tolist(), m.errors.tolist()) for m in report.members}


def run(effort: Effort) -> Outcome:
    """Both panels, and the verdict of each family."""
    exponential = family("exp:0.9", largest=0.95, steps=STEPS)
    effort.tick(1, 3)
    polynomial = family("poly:1.1", largest=1.0, steps=STEPS)
    effort.tick(2, 3)
    short = family("poly:1.1", largest=1.0, steps=100)
    figure, axes = panels("0.9^t", "(t+1)^-1.1")
    for at, report in zip(axes, (exponential, polynomial), strict=True):
        lines(at, curves(report), x="beta", y="E_m(beta)", logs="xy")
    numbers = [
        Number(f"{name}: crossing of m = {c.smaller} and {c.larger}", float(c.beta))
        for name, report in (("0.9^t", exponential), ("(t+1)^-1.1", polynomial))
        for c in report.crossings
    ]
    numbers.append(Number("(t+1)^-1.1 over the paper's 100 steps", short.verdict))
    holds = exponential.verdict == "stable" and polynomial.verdict == "unstable"
    return Outcome(
        holds=holds,
        reason=f"0.9^t: {exponential.reason}; (t+1)^-1.1: {polynomial.reason}",
        numbers=tuple(numbers),
        settings={"m": SIZES, "betas": len(BETAS), "draws": 10, "steps": STEPS, "norm": "sup"},
        figure=figure,
    )


ROW = Row(
    id="I-F1a/b",
    title="Linear RNNs and two kernels",
    claim="for 0.9^t a stability radius exists; for (t+1)^-1.1 the crossings shift left",
    run=run,
)
