"""S-F4a, S-F5: gradient over weight of the recurrent weights in a language model."""

from __future__ import annotations

import itertools

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from examples.reproduce.drawing import lines, panels
from examples.reproduce.row import Effort, Number, Outcome, Row
from examples.reproduce.stablessm import language
from examples.reproduce.stablessm.training import cross_entropy
from memaudit import registry

UNSTABLE, STABLE = ("direct", "relu"), ("exp", "softplus", "tanh", "best")
FORMS = UNSTABLE + STABLE
LR = 0.005
#: At the start every form has the same eigenvalues, but in float32: 1 - lambda, of 0.001 and more,
#: is rounded by up to 6e-5 of itself, and the derivative of `best` is that squared.
ROUNDING = 1e-2


def ratios(model: language.TokenModel) -> Tensor:
    """|gradient| / |w| of every recurrent weight; none of them is near zero in these models."""
    parts = [raw.grad.abs() / raw.detach().abs() for raw in model.raws() if raw.grad is not None]
    return torch.cat(parts).double()


def at_the_start(form: str, size: language.Language, text: Tensor, seed: int) -> Tensor:
    """The ratios before the first update."""
    model = language.model(form, size, seed)
    inputs, wanted = next(language.batches(text, size, seed))
    cross_entropy(model(inputs), wanted).backward()
    return ratios(model)


def predicted(form: str, plain: Tensor, size: language.Language, seed: int) -> Tensor:
    """The ratios that follow by the chain rule from those of `direct`, where w is lambda."""
    reparam = registry.build("reparams", form, time="discrete")
    lam = torch.cat([raw.detach().double() for raw in language.model("direct", size, seed).raws()])
    w = reparam.inverse(lam)
    slope = torch.func.grad(lambda raw: reparam.forward(raw).sum())(w)
    return plain * lam * (slope / w).abs()


def in_training(form: str, size: language.Language, text: Tensor, seed: int) -> list[float]:
    """The largest ratio at every step."""
    found: list[float] = []

    def watch(step: int, loss: float, model: nn.Module) -> None:
        del step, loss
        found.append(float(ratios(model).amax()))

    language.learn(form, LR, size, text, seed, watch=watch)
    return found


def run(effort: Effort) -> Outcome:
    """Both figures for every seed; the verdict needs all seeds."""
    size = effort.pick(quick=language.SMALL, full=language.PAPER)
    seeds = range(effort.seed, effort.seed + 3)
    text, _ = language.texts()
    start = {(f, s): at_the_start(f, size, text, s) for f in FORMS for s in seeds}
    trained: dict[tuple[str, int], list[float]] = {}
    followed = list(itertools.product(FORMS, seeds[: effort.pick(quick=2, full=3)]))
    for done, (form, seed) in enumerate(followed):
        trained[form, seed] = in_training(form, size, text, seed)
        effort.tick(done + 1, len(followed))
    off = max(
        float((start[f, s] / predicted(f, start["direct", s], size, s) - 1).abs().amax())
        for f in FORMS
        for s in seeds
    )
    width = {key: float(found.amax() - found.amin()) for key, found in start.items()}
    narrower = [
        max(width[f, s] for f in STABLE) < min(width[f, s] for f in UNSTABLE) for s in seeds
    ]
    peak = {key: max(found) for key, found in trained.items()}
    runs = sorted({seed for _, seed in trained})
    smallest = [min(FORMS, key=lambda f, s=s: peak[f, s]) for s in runs]
    first = effort.seed
    numbers = [Number(f"{f}: width of the range at the start", width[f, first]) for f in FORMS]
    folds = {f: float(start[f, first].amax() / start[f, first].amin()) for f in FORMS}
    numbers += [Number(f"{f}: largest over smallest at the start", folds[f]) for f in FORMS]
    numbers += [Number(f"{f}: largest ratio in training", peak[f, first]) for f in FORMS]
    numbers.append(Number("ratios at the start against the chain rule, relative", off))
    return Outcome(
        holds=all(narrower) and set(smallest) == {"best"} and off < ROUNDING,
        reason=(
            f"at the start every stable form has a narrower range than direct and relu in "
            f"{sum(narrower)} of {len(narrower)} seeds by largest less smallest (by largest over "
            f"smallest: best {folds['best']:.2g}, direct {folds['direct']:.2g}); in training "
            f"the smallest largest ratio is that of {' and '.join(sorted(set(smallest)))} "
            f"({len(runs)} seeds): best {peak['best', first]:.2g}, softplus "
            f"{peak['softplus', first]:.2g}, exp {peak['exp', first]:.2g}, direct "
            f"{peak['direct', first]:.2g}, relu {peak['relu', first]:.2g}"
        ),
        numbers=tuple(numbers),
        settings={**size.settings(), "lr": LR, "seeds": list(seeds), "seeds in training": runs},
        figure=_drawn({f: start[f, first] for f in FORMS}, {f: trained[f, first] for f in FORMS}),
        scaled=language.scaled(effort, size),
    )


def _drawn(start: dict[str, Tensor], trained: dict[str, list[float]]) -> Figure:
    figure, axes = panels("the same start (F4a)", "in training (F5)")
    for at, found in enumerate(start.values()):
        axes[0].plot([at] * len(found), found, ".", markersize=4)
    axes[0].set_xticks(range(len(start)), list(start), fontsize=8)
    axes[0].set_yscale("log")
    axes[0].tick_params(labelsize=8)
    axes[0].set_ylabel("|gradient| / |weight|", fontsize=9)
    curves = {form: (list(range(1, 1 + len(y))), y) for form, y in trained.items()}
    lines(axes[1], curves, x="step", y="largest |gradient| / |weight|", logs="y")
    return figure


ROW = Row(
    id="S-F4a, S-F5",
    title="Gradient over weight in a language model",
    claim=(
        "from the same start exp, softplus, tanh and best have a narrower range of gradient over "
        "weight than direct and relu; in training best keeps the smallest maximum"
    ),
    run=run,
)
