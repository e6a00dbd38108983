"""U-T1: the memory patterns of RNN, TCN and transformer, as an audit classifies them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn import functional

import memaudit
from examples.reproduce.drawing import lines, panels
from examples.reproduce.row import Effort, Number, Outcome, Row
from memaudit.memory.result import Curve

WIDTH, LAYERS, HORIZON, REPEATS = 32, 2, 512, 5
KERNEL, DILATIONS = 3, (1, 2, 4, 8, 16)
#: What a TCN can hook: (KERNEL - 1) steps back for every unit of dilation, and the present.
REACH = 1 + (KERNEL - 1) * sum(DILATIONS)


class Tcn(nn.Module):
    """Causal convolutions with growing dilations, tanh behind each."""

    def __init__(self, draw: torch.Generator) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            nn.Conv1d(1 if at == 0 else WIDTH, WIDTH, KERNEL, dilation=d, dtype=torch.float64)
            for at, d in enumerate(DILATIONS)
        )
        _fill(self, draw)

    def forward(self, u: Tensor) -> Tensor:
        """The answers (B,T,WIDTH) to (B,T,1)."""
        x = u.mT
        for part, dilation in zip(self.convolutions, DILATIONS, strict=True):
            x = torch.tanh(part(functional.pad(x, ((KERNEL - 1) * dilation, 0))))
        return x.mT


class Transformer(nn.Module):
    """Causal single-head attention and an MLP, each behind a norm and beside a skip.

    `gain` multiplies the scores, `slope` takes slope·lag off them, as ALiBi does.
    """

    def __init__(self, draw: torch.Generator, *, gain: float = 1.0, slope: float = 0.0) -> None:
        super().__init__()
        made = {"dtype": torch.float64}
        self.embed = nn.Linear(1, WIDTH, **made)
        self.mixers = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH, **made) for _ in range(LAYERS))
        self.first = nn.ModuleList(nn.Linear(WIDTH, 4 * WIDTH, **made) for _ in range(LAYERS))
        self.second = nn.ModuleList(nn.Linear(4 * WIDTH, WIDTH, **made) for _ in range(LAYERS))
        self.gain, self.slope = gain, slope
        _fill(self, draw)

    def forward(self, u: Tensor) -> Tensor:
        """The answers (B,T,WIDTH) to (B,T,1)."""
        x = self.embed(u)
        lags = torch.arange(u.shape[1])[:, None] - torch.arange(u.shape[1])
        mask = torch.where(lags >= 0, -self.slope * lags.double(), -torch.inf)
        for mix, first, second in zip(self.mixers, self.first, self.second, strict=True):
            query, key, value = mix(functional.layer_norm(x, (WIDTH,))).chunk(3, dim=-1)
            scores = self.gain * (query @ key.mT) / WIDTH**0.5 + mask
            x = x + scores.softmax(-1) @ value
            x = x + second(functional.gelu(first(functional.layer_norm(x, (WIDTH,)))))
        return x


def _fill(module: nn.Module, draw: torch.Generator) -> None:
    """Weights and biases of U(-1, 1) / sqrt(fan), as torch starts its layers."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Conv1d):
            bound = part.weight[0].numel() ** -0.5
            nn.init.uniform_(part.weight, -bound, bound, generator=draw)
            nn.init.uniform_(part.bias, -bound, bound, generator=draw)


def recurrent(draw: torch.Generator) -> nn.Module:
    """An RNN of torch with the weights it starts with."""
    network = nn.RNN(1, WIDTH, num_layers=LAYERS, batch_first=True, dtype=torch.float64)
    for weight in network.parameters():
        nn.init.uniform_(weight, -(WIDTH**-0.5), WIDTH**-0.5, generator=draw)
    return network


MAKERS = {
    "RNN": recurrent,
    "TCN": Tcn,
    "transformer": Transformer,
    "transformer, sharp (gain 40)": lambda draw: Transformer(draw, gain=40.0),
    "transformer, ALiBi (slope 0.1)": lambda draw: Transformer(draw, slope=0.1),
}
PRINTED = {"RNN": "exponential decay", "TCN": "low rank"}


def memory(model: nn.Module) -> Curve:
    """The answer to an impulse: to a constant input attention answers the same at every step."""
    report = memaudit.scan(
        memaudit.wrap(model, input_size=1),
        horizon=HORIZON,
        queries=["impulse"],
        probes=[],
        level="quick",
    )
    return report.memory["impulse"]


def run(effort: Effort) -> Outcome:
    """Several of each, classified."""
    draw = torch.Generator().manual_seed(effort.seed)
    curves: dict[str, list[Curve]] = {}
    for name, make in MAKERS.items():
        curves[name] = [memory(make(draw)) for _ in range(REPEATS)]
        effort.tick(len(curves), len(MAKERS))
    kinds = {name: Counter(c.decay.kind for c in found) for name, found in curves.items()}
    supports = {c.decay.support for c in curves["TCN"]}
    attention = set().union(*(set(kinds[n]) for n in kinds if n.startswith("transformer")))
    numbers = [
        Number(name, _told(counts), PRINTED.get(name, "no restriction"))
        for name, counts in kinds.items()
    ]
    numbers += [
        Number("TCN: lags after which it is over", str(sorted(supports, key=str))),
        Number("TCN: its kernels and dilations reach", REACH),
        Number("transformer: median exponent", _exponent(curves["transformer"])),
        Number("RNN: median rate", float(np.median([c.decay.rate or 0 for c in curves["RNN"]]))),
    ]
    holds = set(kinds["RNN"]) == {"exponential"} and set(kinds["TCN"]) == {"finite"}
    decided = attention - {"undetermined"}
    return Outcome(
        holds=holds and supports == {REACH} and len(decided) >= 2,
        reason="; ".join(f"{name}: {_told(counts)}" for name, counts in kinds.items())
        + f". Attention alone shows {len(decided)} kinds ({', '.join(sorted(decided))})",
        numbers=tuple(numbers),
        settings={
            "width": WIDTH,
            "layers": LAYERS,
            "kernel": KERNEL,
            "dilations": DILATIONS,
            "lags": HORIZON,
            "repeats": REPEATS,
            "chosen": "the table names no sizes; finite is our word for its 'low rank'",
        },
        figure=_figure(curves),
    )


def _told(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in counts.most_common())


def _exponent(found: list[Curve]) -> float | None:
    exponents = [c.decay.exponent for c in found if c.decay.exponent is not None]
    return float(np.median(exponents)) if exponents else None


def _figure(curves: dict[str, list[Curve]]) -> Figure:
    figure, (linear, log) = panels("one of each", "the same, both axes logarithmic")
    shown = {}
    for name, found in curves.items():
        curve = found[0]
        kept = curve.values > 10 * curve.floor
        shown[name] = (curve.lags[kept], curve.values[kept])
    lines(linear, shown, x="lag", y="memory", logs="y")
    later = {name: (at[at > 0], values[at > 0]) for name, (at, values) in shown.items()}
    lines(log, later, x="lag", y="memory", logs="xy")
    return figure


ROW = Row(
    id="U-T1",
    title="Memory patterns of three architectures",
    claim="RNN: exponential decay; TCN: finite (low rank); transformer: no restriction",
    run=run,
)
