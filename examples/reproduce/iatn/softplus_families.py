"""Two families of trained RNNs side by side, as in Figures 7 and 8."""

from __future__ import annotations

from collections.abc import Mapping

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

SIZES = (8, 16, 32, 64)
#: The ball of the text, which decides, and that of the authors' script.
BALLS = ("spectral", "max-abs")


def two_families(
    effort: Effort, asked: Mapping[str, tuple[str, str, str]], *, printed: Mapping[str, float]
) -> Outcome:
    """Name → activation, form and the verdict that the paper claims; `printed` is its largest E."""
    epochs = effort.pick(quick=8, full=EPOCHS)
    reports, numbers, most = {}, [], {}
    for number, (name, (activation, reparam, _)) in enumerate(asked.items()):
        how = {"activation": activation, "reparam": reparam, "updates": epochs * EPOCH}
        students, fits = train_family(SIZES, effort, shares=(number, len(asked)), **how)
        losses = ", ".join(f"{made.last:.1e}" for made in fits)
        numbers.append(Number(f"{name}: losses by growing m", losses))
        for ball in BALLS:
            reports[name, ball] = report = curves_of(students, seed=effort.seed, ball=ball)
            numbers += told(f"{name}, {ball} ball", report)
        most[name] = max(float(member.errors[-1]) for member in report.members)
        numbers.append(
            Number(f"{name}: largest E, {BALLS[-1]} ball", most[name], printed.get(name))
        )
    figure, axes = panels(*(f"{name}, {ball} ball" for name, ball in reports))
    for at, report in zip(axes, reports.values(), strict=True):
        lines(at, shown(report, least=1e-5), x="beta", y="E_m(beta)", logs="xy")
    found = {name: seen(reports[name, BALLS[0]]) for name in asked}
    other = "; ".join(
        f"{name}: {seen(reports[name, BALLS[1]])[0]}, E up to {most[name]:.2g}" for name in asked
    )
    said = "; ".join(f"{name}: {verdict}, {why}" for name, (verdict, why) in found.items())
    return Outcome(
        holds=all(found[name][0] == wanted for name, (_, _, wanted) in asked.items()),
        reason=f"{said} (in the {BALLS[1]} ball {other})",
        numbers=tuple(numbers),
        settings={
            "target": TARGET,
            "m": SIZES,
            "training": f"Adam {RATE}, {epochs} epochs of {SAMPLES}, batch {BATCH}, t <= 3.2",
            "form": "softplus: W = -Pᵀ diag(log(1 + exp(w))) P; w and P are moved",
            "betas": f"1e-11 · 2^k, k = 0 … {len(BETAS) - 1}; t <= 10, sobolev",
            "draws": f"{DRAWS} with each of two seeds, the largest",
        },
        figure=figure,
        scaled=effort.pick(quick="8 epochs of training instead of 1000", full=""),
    )
