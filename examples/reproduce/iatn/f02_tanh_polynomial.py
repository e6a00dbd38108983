"""I-F2: tanh RNNs that learned (t+1)^-1.5 are not stable."""

from __future__ import annotations

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
    TESTED,
    TRAINED,
    curves_of,
    seen,
    shown,
    told,
    train_family,
)
from examples.reproduce.row import Effort, Number, Outcome, Row

SIZES = (4, 8, 16, 64)
#: Norm, ball and steps: what the text defines, then what else may have been plotted.
WAYS = {
    "text (sobolev, spectral ball, t <= 10)": ("sobolev", "spectral", TESTED),
    "max-abs ball, t <= 10": ("sobolev", "max-abs", TESTED),
    "mean square error, max-abs ball, t <= 10": ("mse", "max-abs", TESTED),
    "text, t <= 3.2 as in training": ("sobolev", "spectral", TRAINED),
}


def run(effort: Effort) -> Outcome:
    """Train, move the weights in every way, and let the text's own definition decide."""
    epochs = effort.pick(quick=20, full=EPOCHS)
    students, fits = train_family(SIZES, effort, updates=epochs * EPOCH)
    reports = {
        name: curves_of(students, seed=effort.seed, norm=norm, ball=ball, steps=steps)
        for name, (norm, ball, steps) in WAYS.items()
    }
    if not effort.quick:  # the supremum itself, as near as gradients come; minutes
        wide = [1e-4 * 4.0**k for k in range(6)]
        climbed = curves_of(students, seed=effort.seed, betas=wide, ascent=6)
        reports["text, gradient ascent"] = climbed
    numbers = [
        Number(f"loss of m = {m} after training", made.last, 1e-8)
        for m, made in zip(SIZES, fits, strict=True)
    ]
    for name, report in reports.items():
        numbers += told(name, report)
    figure, axes = panels(*list(WAYS)[:3])
    for at, name, y in zip(axes, WAYS, ("E", "E", "mean square E"), strict=False):
        lines(at, shown(reports[name], least=1e-6), x="beta", y=f"{y}_m(beta)", logs="xy")
    verdicts = {name: seen(report) for name, report in reports.items()}
    first, *others = verdicts.items()
    rest = "; ".join(f"{name}: {verdict}" for name, (verdict, _) in others)
    return Outcome(
        holds=first[1][0] == "unstable",
        reason=f"{first[0]}: {first[1][0]}, {first[1][1]}; {rest}",
        numbers=tuple(numbers),
        settings={
            "target": TARGET,
            "m": SIZES,
            "training": f"Adam {RATE}, {epochs} epochs of {SAMPLES}, batch {BATCH}, t <= 3.2",
            "betas": f"1e-11 · 2^k, k = 0 … {len(BETAS) - 1}",
            "draws": f"{DRAWS} with each of two seeds, the largest",
            "weights": "all moved",
        },
        figure=figure,
        scaled=effort.pick(quick="20 epochs of training instead of 1000", full=""),
    )


ROW = Row(
    id="I-F2",
    title="tanh RNNs and a polynomial memory",
    claim="no stability: the crossings of E_m(beta) shift left as m grows",
    run=run,
)
