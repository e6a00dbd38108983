"""S-T2: perplexities of language models whose modes stand behind four forms."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from statistics import mean, stdev

from matplotlib.figure import Figure

from examples.reproduce.drawing import lines, panels
from examples.reproduce.row import Effort, Number, Outcome, Row
from examples.reproduce.stablessm import language

#: Table 2: test perplexity (of word pieces, on WikiText-103).
PRINTED = {"best": 20.811, "exp": 20.218, "softplus": 20.136, "direct": 28.167}
STABLE = ("best", "exp", "softplus")
LR = 0.005


@dataclass(frozen=True, slots=True)
class Tested:
    """Test losses by length and form, one a seed; training losses of the first seed by form."""

    losses: dict[tuple[int, str], list[float]]
    curves: dict[str, tuple[float, ...]]


def tested(effort: Effort, long: language.Language, short: language.Language) -> Tested:
    """Every form with the long sequences, best and direct with the short ones as well."""
    train_text, test_text = language.texts()
    seeds = _seeds(effort)
    plan = [*itertools.product((long,), PRINTED, seeds)]
    plan += itertools.product((short,), ("best", "direct"), seeds)
    found = Tested({}, {})
    for done, (size, form, seed) in enumerate(plan):
        model, learned = language.learn(form, LR, size, train_text, seed)
        loss = language.evaluate(model, test_text, size)
        found.losses.setdefault((size.size.length, form), []).append(loss)
        if size is long:
            found.curves.setdefault(form, learned.losses)
        effort.tick(done + 1, len(plan))
    return found


def run(effort: Effort) -> Outcome:
    """Test losses by form and seed, and again with sequences a quarter as long."""
    long = effort.pick(quick=language.SMALL, full=language.PAPER)
    shorter = replace(long.size, length=long.size.length // 4)
    short = replace(long, size=shorter, batch=4 * long.batch)
    found = tested(effort, long, short)
    at = {form: found.losses[long.size.length, form] for form in PRINTED}
    other = {form: mean(found.losses[shorter.length, form]) for form in ("best", "direct")}
    holds = all(mean(at[form]) < mean(at["direct"]) for form in STABLE)
    return Outcome(
        holds=holds,
        reason=f"{_compared(at, holds=holds)}. With sequences of {shorter.length} "
        f"best has {other['best']:.4f} and direct {other['direct']:.4f}",
        numbers=(
            *_numbers(at),
            *(Number(f"{f}: test loss at length {shorter.length}", x) for f, x in other.items()),
        ),
        settings={
            **long.settings(),
            "lr": LR,
            "seeds": list(_seeds(effort)),
            "the paper, perplexity of word pieces on WikiText-103": PRINTED,
        },
        figure=_drawn(found.curves, at),
        scaled=language.scaled(effort, long),
    )


def _seeds(effort: Effort) -> range:
    return range(effort.seed, effort.seed + 3)


def _compared(at: dict[str, list[float]], *, holds: bool) -> str:
    order = sorted(at, key=lambda form: mean(at[form]))
    beaten = sum(max(trio) < last for *trio, last in zip(*at.values(), strict=True))
    return (
        f"test loss {', '.join(f'{form} {mean(at[form]):.4f}' for form in order)} nats for a "
        f"byte: on average {'all' if holds else 'not all'} stable forms beat direct, and all "
        f"do in {beaten} of {len(at['direct'])} seeds; the "
        f"paper's best is the worst of the stable three, here that is "
        f"{[form for form in order if form in STABLE][-1]}"
    )


def _numbers(at: dict[str, list[float]]) -> list[Number]:
    return [
        *(
            Number(f"{form}: test perplexity for a byte", math.exp(min(700, mean(losses))))
            for form, losses in at.items()
        ),
        *(Number(f"{form}: test loss, mean of {len(x)}", mean(x)) for form, x in at.items()),
        *(Number(f"{form}: test loss, deviation", _spread(x)) for form, x in at.items()),
    ]


def _drawn(curves: dict[str, tuple[float, ...]], at: dict[str, list[float]]) -> Figure:
    figure, (left, right) = panels("training loss, first seed", "test perplexity for a byte")
    drawn = {f: (list(range(1, 1 + len(c))), c) for f, c in curves.items()}
    lines(left, drawn, x="step", y="nats for a byte")
    for place, (form, losses) in enumerate(at.items()):
        finite = [math.exp(x) for x in losses if math.isfinite(x)]
        right.plot([place] * len(finite), finite, "o", markersize=5, label=form)
    right.set_xticks(range(len(at)), list(at), fontsize=8)
    right.tick_params(labelsize=8)
    right.set_ylabel("three seeds", fontsize=9)
    return figure


def _spread(values: list[float]) -> float:
    return stdev(values) if all(map(math.isfinite, values)) else math.inf


ROW = Row(
    id="S-T2",
    title="Language models behind four forms",
    claim="the test perplexity of every stable form is below that of direct",
    run=run,
)
