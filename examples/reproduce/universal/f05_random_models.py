"""U-F5 and U-F6: random recurrent networks, naive SSMs and S4 forget exponentially."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import nn

import memaudit
from examples.reproduce.drawing import COLOURS, lines, panels
from examples.reproduce.row import Effort, Number, Outcome, Row
from examples.reproduce.universal.stacks import Stack, StateSpace
from memaudit.memory.result import Curve
from memaudit_ssm import S4

WIDTH, DEPTHS, HORIZON = 64, (1, 2, 3), 512
#: S4 starts with steps of 0.001 to 0.1 and a decay of 1/2: the slowest mode needs 2000 steps to
#: fall to 1/e, so that the end of its decay is seen after tens of thousands.
S4_WIDTH, S4_STATES, S4_WINDOW, S4_SHORT = 4, 64, 32_768, 2048


def recurrent(kind: type[nn.RNNBase]) -> Callable[[int, torch.Generator], nn.Module]:
    """Networks of torch with the weights they start with, U(-1, 1) / sqrt(WIDTH)."""

    def make(depth: int, draw: torch.Generator) -> nn.Module:
        network = kind(1, WIDTH, num_layers=depth, batch_first=True, dtype=torch.float64)
        for weight in network.parameters():
            nn.init.uniform_(weight, -(WIDTH**-0.5), WIDTH**-0.5, generator=draw)
        return network

    return make


def naive(depth: int, draw: torch.Generator) -> nn.Module:
    """State-space layers with such weights, and tanh between them."""

    def uniform(*shape: int) -> torch.Tensor:
        values = torch.rand(*shape, generator=draw, dtype=torch.float64)
        return (2 * values - 1) * WIDTH**-0.5

    fed = [1] + [WIDTH] * (depth - 1)
    return Stack([StateSpace(uniform(WIDTH, WIDTH), uniform(WIDTH, d)) for d in fed])


def s4(depth: int, draw: torch.Generator) -> nn.Module:
    """S4 (diagonal plus rank one) as it starts, GELU between layers."""
    layers = [S4(S4_WIDTH, S4_STATES, rank=1, generator=draw) for _ in range(depth)]
    return Stack(layers, nn.GELU()).double()


MAKERS = {
    "RNN": recurrent(nn.RNN),
    "GRU": recurrent(nn.GRU),
    "LSTM": recurrent(nn.LSTM),
    "naive SSM": naive,
    "S4": s4,
}


def memory(model: nn.Module, inputs: int, window: int) -> Curve:
    """Eq. 9: a step of ones, the Euclidean norm of the change of the answer."""
    report = memaudit.scan(
        memaudit.wrap(model, input_size=inputs),
        horizon=window,
        queries=["heaviside"],
        probes=[],
        normalization="universal",
    )
    return report.memory["heaviside"]


@dataclass(frozen=True, slots=True)
class Found:
    """What random models remember.

    Curves are beside the depths of their models, `ratios` are measured rates over those of the
    eigenvalues, and `short` counts what S4 shows over a short window.
    """

    curves: dict[str, list[tuple[int, Curve]]]
    ratios: dict[str, list[float]]
    short: Counter[str]

    @property
    def kinds(self) -> dict[str, Counter[str]]:
        """How often each kind of decay is seen, by the kind of model."""
        return {name: Counter(c.decay.kind for _, c in some) for name, some in self.curves.items()}


def measured(effort: Effort, repeats: int) -> Found:
    """Several of each kind and depth."""
    draw = torch.Generator().manual_seed(effort.seed)
    found = Found({}, {"naive SSM": [], "S4": []}, Counter())
    for name, make in MAKERS.items():
        inputs, window = (S4_WIDTH, S4_WINDOW) if name == "S4" else (1, HORIZON)
        for depth in DEPTHS:
            for _ in range(repeats):
                model = make(depth, draw)
                curve = memory(model, inputs, window)
                found.curves.setdefault(name, []).append((depth, curve))
                if depth == 1 and hasattr(model, "layers"):
                    found.ratios[name].append(_against_spectrum(model, curve))
                if name == "S4":
                    found.short[memory(model, inputs, S4_SHORT).decay.kind] += 1
        effort.tick(len(found.curves), len(MAKERS))
    return found


def run(effort: Effort) -> Outcome:
    """Several of each kind and depth, classified."""
    repeats = effort.pick(quick=3, full=20)
    found = measured(effort, repeats)
    kinds = found.kinds
    total = sum(len(some) for some in found.curves.values())
    seen = sum(counts["exponential"] for counts in kinds.values())
    return Outcome(
        holds=seen == total,
        reason=f"{seen} of {total} random models decay exponentially ("
        + "; ".join(f"{name}: {_told(counts)}" for name, counts in kinds.items())
        + f"); over the first {S4_SHORT} lags S4 shows {_told(found.short)}",
        numbers=tuple(_numbers(found)),
        settings={
            "width": WIDTH,
            "depths": DEPTHS,
            "repeats": repeats,
            "lags": HORIZON,
            "S4": {"width": S4_WIDTH, "states": S4_STATES, "rank": 1, "lags": S4_WINDOW},
            "chosen": "the paper names none of these sizes",
        },
        figure=_figure(found),
    )


def _numbers(found: Found) -> Iterator[Number]:
    for name, counts in found.kinds.items():
        yield Number(f"{name}: kinds of decay", _told(counts), "exponential")
    for name, some in found.curves.items():
        for depth in DEPTHS:
            yield Number(f"{name}, {depth} layers: median rate", _rate(some, depth))
    for name, values in found.ratios.items():
        told = f"{name}, 1 layer: rate over -log of the slowest |eigenvalue|"
        yield Number(told, float(np.median(values)), 1)
    yield Number(f"S4 over {S4_SHORT} lags: kinds of decay", _told(found.short))


def _figure(found: Found) -> Figure:
    figure, axes = panels(*MAKERS)
    for at, (name, some) in zip(axes, found.curves.items(), strict=True):
        _draw(at, some, every=64 if name == "S4" else 1)
    return figure


def _against_spectrum(model: nn.Module, curve: Curve) -> float:
    """The measured rate of a linear layer over the one that its eigenvalues give."""
    with torch.no_grad():
        slowest = float(model.layers[0].modes().abs().max())
    return float(curve.decay.rate or 0.0) / -float(np.log(slowest))


def _told(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in counts.most_common())


def _rate(found: list[tuple[int, Curve]], depth: int) -> float | None:
    rates = [c.decay.rate for d, c in found if d == depth and c.decay.kind == "exponential"]
    return float(np.median(rates)) if rates else None


def _draw(axes: Axes, found: list[tuple[int, Curve]], *, every: int) -> None:
    """Curves above their floors, one colour a depth; of `every` lags the largest is drawn."""
    for depth, colour in zip(DEPTHS, COLOURS, strict=False):
        for at, curve in enumerate(c for d, c in found if d == depth):
            last = int(np.flatnonzero(curve.values > 10 * curve.floor)[-1]) + 1
            starts = np.arange(0, last, every)
            shown = np.maximum.reduceat(curve.values[:last], starts)
            label = f"{depth} layers" if at == 0 else None
            axes.plot(curve.lags[starts], shown, color=colour, linewidth=0.9, label=label)
    lines(axes, {}, x="lag", y="memory", logs="y")
    axes.legend(fontsize=7)


ROW = Row(
    id="U-F5, U-F6",
    title="Memory of random models",
    claim="the memory of random RNNs, naive SSMs and S4 decays exponentially in the end",
    run=run,
)
