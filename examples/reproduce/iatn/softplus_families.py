"""Two families of trained RNNs side by side, as in Figures 7 and 8."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from matplotlib.figure import Figure

from examples.reproduce.drawing import lines, panels
from examples.reproduce.iatn.trained import (
    BATCH,
    BETAS,
    DRAWS,
    EPOCH,
    EPOCHS,
    RATE,
    SAMPLES,
    TARGET,
    curves_of,
    seen,
    shown,
    told,
    train_family,
)
from examples.reproduce.row import Effort, Number, Outcome
from memaudit.families.result import FamilyReport

SIZES = (8, 16, 32, 64)
#: The ball of the text, which decides, and that of the authors' script.
BALLS = ("spectral", "max-abs")


def two_families(
    effort: Effort, asked: Mapping[str, tuple[str, str, str]], *, printed: Mapping[str, float]
) -> Outcome:
    """Name → activation, form and the verdict that the paper claims; `printed` is its largest E."""
    epochs = effort.pick(quick=8, full=EPOCHS)
    reports: dict[tuple[str, str], FamilyReport] = {}
    numbers = []
    for number, (name, (activation, reparam, _)) in enumerate(asked.items()):
        how = {"activation": activation, "reparam": reparam, "updates": epochs * EPOCH}
        students, fits = train_family(SIZES, effort, shares=(number, len(asked)), **how)
        losses = ", ".join(f"{made.last:.1e}" for made in fits)
        numbers.append(Number(f"{name}: losses by growing m", losses))
        for ball in BALLS:
            reports[name, ball] = curves_of(students, seed=effort.seed, ball=ball)
            numbers += told(f"{name}, {ball} ball", reports[name, ball])
        most = _largest(reports[name, BALLS[-1]])
        numbers.append(Number(f"{name}: largest E, {BALLS[-1]} ball", most, printed.get(name)))
    found = {name: seen(reports[name, BALLS[0]])[0] for name in asked}
    return Outcome(
        holds=all(found[name] == wanted for name, (_, _, wanted) in asked.items()),
        reason=_reason(reports, asked),
        numbers=tuple(numbers),
        settings={
            "target": TARGET,
            "m": SIZES,
            "training": f"Adam {RATE}, {epochs} epochs of {SAMPLES}, batch {BATCH}, t <= 3.2",
            "form": "softplus: W = -Pᵀ diag(log(1 + exp(w))) P; w and P are moved",
            "betas": f"1e-11 · 2^k, k = 0 … {len(BETAS) - 1}; t <= 10, sobolev",
            "draws": f"{DRAWS} with each of two seeds, the largest",
        },
        figure=_figure(reports),
        scaled=effort.pick(quick="8 epochs of training instead of 1000", full=""),
    )


def _largest(report: FamilyReport) -> float:
    return max(float(member.errors[-1]) for member in report.members)


def _reason(reports: dict[tuple[str, str], FamilyReport], names: Iterable[str]) -> str:
    """What is seen in the ball that decides, and in the other one."""
    said, other = [], []
    for name in names:
        verdict, why = seen(reports[name, BALLS[0]])
        said.append(f"{name}: {verdict}, {why}")
        beside = reports[name, BALLS[1]]
        other.append(f"{name}: {seen(beside)[0]}, E up to {_largest(beside):.2g}")
    return f"{'; '.join(said)} (in the {BALLS[1]} ball {'; '.join(other)})"


def _figure(reports: dict[tuple[str, str], FamilyReport]) -> Figure:
    figure, axes = panels(*(f"{name}, {ball} ball" for name, ball in reports))
    for at, report in zip(axes, reports.values(), strict=True):
        lines(at, shown(report, least=1e-5), x="beta", y="E_m(beta)", logs="xy")
    return figure
