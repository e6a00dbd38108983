"""S-F4a, S-F5: gradient over weight of the recurrent weights in a language model."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Ratios:
    """By form and seed: all ratios at the start, and the largest at every step of training."""

    start: dict[tuple[str, int], Tensor]
    trained: dict[tuple[str, int], list[float]]

    @property
    def narrower(self) -> list[bool]:
        """By seed, whether every stable form has a narrower range at the start than the others."""
        width = {key: _width(found) for key, found in self.start.items()}
        return [
            max(width[f, s] for f in STABLE) < min(width[f, s] for f in UNSTABLE)
            for s in sorted({seed for _, seed in self.start})
        ]

    @property
    def peak(self) -> dict[tuple[str, int], float]:
        """The largest ratio in training."""
        return {key: max(found) for key, found in self.trained.items()}

    @property
    def runs(self) -> list[int]:
        """The seeds that were followed in training."""
        return sorted({seed for _, seed in self.trained})


def measured(effort: Effort, size: language.Language, text: Tensor, seeds: range) -> Ratios:
    """Every form and seed at the start, and those that are followed in training."""
    start = {(f, s): at_the_start(f, size, text, s) for f in FORMS for s in seeds}
    trained: dict[tuple[str, int], list[float]] = {}
    followed = list(itertools.product(FORMS, seeds[: effort.pick(quick=2, full=3)]))
    for done, (form, seed) in enumerate(followed):
        trained[form, seed] = in_training(form, size, text, seed)
        effort.tick(done + 1, len(followed))
    return Ratios(start, trained)


def run(effort: Effort) -> Outcome:
    """Both figures for every seed; the verdict needs all seeds."""
    size = effort.pick(quick=language.SMALL, full=language.PAPER)
    seeds = range(effort.seed, effort.seed + 3)
    text, _ = language.texts()
    found, first = measured(effort, size, text, seeds), effort.seed
    off = max(
        float((ratio / predicted(f, found.start["direct", s], size, s) - 1).abs().amax())
        for (f, s), ratio in found.start.items()
    )
    peak, narrower, runs = found.peak, found.narrower, found.runs
    smallest = {min(FORMS, key=lambda f, s=s: peak[f, s]) for s in runs}
    folds = {f: float(found.start[f, first].amax() / found.start[f, first].amin()) for f in FORMS}
    return Outcome(
        holds=all(narrower) and smallest == {"best"} and off < ROUNDING,
        reason=(
            f"at the start every stable form has a narrower range than direct and relu in "
            f"{sum(narrower)} of {len(narrower)} seeds by largest less smallest (by largest over "
            f"smallest: best {folds['best']:.2g}, direct {folds['direct']:.2g}); in training "
            f"the smallest largest ratio is that of {' and '.join(sorted(smallest))} "
            f"({len(runs)} seeds): {_peaks(peak, first)}"
        ),
        numbers=(
            *_numbers(found, folds, first),
            Number("ratios at the start against the chain rule, relative", off),
        ),
        settings={**size.settings(), "lr": LR, "seeds": list(seeds), "seeds in training": runs},
        figure=_drawn(found, first),
        scaled=language.scaled(effort, size),
    )


def _width(found: Tensor) -> float:
    return float(found.amax() - found.amin())


def _peaks(peak: dict[tuple[str, int], float], seed: int) -> str:
    told = ("best", "softplus", "exp", "direct", "relu")
    return ", ".join(f"{form} {peak[form, seed]:.2g}" for form in told)


def _numbers(found: Ratios, folds: dict[str, float], seed: int) -> list[Number]:
    peak = found.peak
    return [
        *(
            Number(f"{f}: width of the range at the start", _width(found.start[f, seed]))
            for f in FORMS
        ),
        *(Number(f"{f}: largest over smallest at the start", folds[f]) for f in FORMS),
        *(Number(f"{f}: largest ratio in training", peak[f, seed]) for f in FORMS),
    ]


def _drawn(found: Ratios, seed: int) -> Figure:
    figure, axes = panels("the same start (F4a)", "in training (F5)")
    for at, form in enumerate(FORMS):
        ratio = found.start[form, seed]
        axes[0].plot([at] * len(ratio), ratio, ".", markersize=4)
    axes[0].set_xticks(range(len(FORMS)), list(FORMS), fontsize=8)
    axes[0].set_yscale("log")
    axes[0].tick_params(labelsize=8)
    axes[0].set_ylabel("|gradient| / |weight|", fontsize=9)
    trained = {form: found.trained[form, seed] for form in FORMS}
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
