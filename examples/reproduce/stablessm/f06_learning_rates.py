"""S-F4b, S-F6: training losses of language models at four learning rates, and their spikes."""

from __future__ import annotations

import itertools

from matplotlib.figure import Figure

from examples.reproduce.drawing import lines, panels
from examples.reproduce.row import Effort, Number, Outcome, Row
from examples.reproduce.stablessm import language
from examples.reproduce.stablessm.training import BEFORE, SPIKE, Run, beside, spikes

RATES = (0.001, 0.002, 0.005, 0.01)
FORMS = ("best", "exp", "softplus", "relu", "direct")

#: Rate and form → its training.
Runs = dict[tuple[float, str], Run]


def trainings(effort: Effort, size: language.Language) -> Runs:
    """Every form at every rate."""
    text, _ = language.texts()
    plan = list(itertools.product(RATES, FORMS))
    found: Runs = {}
    for done, (lr, form) in enumerate(plan):
        found[lr, form] = language.learn(form, lr, size, text, effort.seed)[1]
        effort.tick(done + 1, len(plan))
    return found


def run(effort: Effort) -> Outcome:
    """Every form at every rate; spikes are counted by one rule."""
    size = effort.pick(quick=language.SMALL, full=language.PAPER)
    found = trainings(effort, size)
    alike = {lr: [found[lr, form] for form in FORMS] for lr in RATES}
    counted = {f: {lr: spikes(found[lr, f], alike[lr]) for lr in RATES} for f in FORMS}
    calm = sum(counted["best"].values()) == 0
    return Outcome(
        holds=calm and counted["exp"][0.005] + counted["exp"][0.01] > 0,
        reason=_reason(found, counted),
        numbers=tuple(
            Number(f"{form}, lr {lr}: {what}", value)
            for form, lr in itertools.product(FORMS, RATES)
            for what, value in (("spikes", counted[form][lr]), ("last loss", found[lr, form].last))
        ),
        settings={
            **size.settings(),
            "learning rates": RATES,
            "seed": effort.seed,
            "spike": f"loss over the median of all forms on the same batch, more than {SPIKE} "
            f"times the median of the {BEFORE} ratios before it; a loss that is not finite; a row "
            "of them is one spike",
        },
        figure=_figure(found, alike),
        scaled=language.scaled(effort, size),
    )


def _reason(found: Runs, counted: dict[str, dict[float, int]]) -> str:
    total = {form: sum(counted[form].values()) for form in FORMS}
    lowest = min(FORMS, key=lambda form: found[0.01, form].last)
    return (
        f"spikes over all four rates: {', '.join(f'{f} {total[f]}' for f in FORMS)}; exp at "
        f"0.005 and 0.01: {counted['exp'][0.005]} and {counted['exp'][0.01]}. At 0.01 the "
        f"lowest loss is that of {lowest} ({found[0.01, lowest].last:.3f}; best "
        f"{found[0.01, 'best'].last:.3f}, exp {found[0.01, 'exp'].last:.3f}), in the paper "
        "that of best"
    )


def _figure(found: Runs, alike: dict[float, list[Run]]) -> Figure:
    figure, axes = panels(*(f"lr = {lr}" for lr in RATES))
    for at, lr in zip(axes, RATES, strict=True):
        curves = {form: beside(found[lr, form], alike[lr]) for form in FORMS}
        drawn = {form: (list(range(1, 1 + len(y))), y) for form, y in curves.items()}
        lines(at, drawn, x="step", y="loss over the median of the forms")
    return figure


ROW = Row(
    id="S-F4b, S-F6",
    title="Learning rates and spikes",
    claim="at all four learning rates best has no spikes; exp has some at the large ones",
    run=run,
)
