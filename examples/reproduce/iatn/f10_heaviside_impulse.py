"""I-F10: random recurrent networks forget a step as fast as an impulse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import memaudit
from examples.reproduce.drawing import COLOURS, lines, panels
from examples.reproduce.row import Effort, Number, Outcome, Row
from memaudit.memory.result import Curve
from memaudit_ssm import S4

REPEATS = 20
#: The paper names no width; 32 is torch-like, and small enough for all repeats.
UNITS, WIDTH, STATES = 32, 8, 64
CELLS = {"RNN": nn.RNN, "GRU": nn.GRU, "LSTM": nn.LSTM}
QUERIES = ("heaviside", "impulse")
#: Slopes count as equal per depth when their medians over the repeats differ by less than this.
ALIKE = 0.2
#: Slopes are fitted from this lag on: before it the layers fill up.
SETTLED = 8


class S4Stack(nn.Module):
    """Layers of S4, each with a GELU and a linear mixing, between an encoder and a decoder."""

    def __init__(self, layers: int, generator: torch.Generator) -> None:
        super().__init__()
        self.encoder = _linear(1, WIDTH, generator)
        self.cores = nn.ModuleList(S4(WIDTH, STATES, generator=generator) for _ in range(layers))
        self.mixing = nn.ModuleList(_linear(WIDTH, WIDTH, generator) for _ in range(layers))
        self.decoder = _linear(WIDTH, 1, generator)

    def forward(self, u: Tensor) -> Tensor:
        """The answers (B,T,1) to (B,T,1)."""
        x = self.encoder(u)
        for core, mix in zip(self.cores, self.mixing, strict=True):
            x = mix(nn.functional.gelu(core(x)))
        return self.decoder(x)


def _linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    return filled(nn.Linear(inputs, outputs), inputs, generator)


def filled(module: nn.Module, units: int, generator: torch.Generator) -> nn.Module:
    """All weights uniform within 1/sqrt(units), as torch starts them."""
    with torch.no_grad():
        for weight in module.parameters():
            weight.uniform_(-(units**-0.5), units**-0.5, generator=generator)
    return module


def random_model(cell: str, layers: int, generator: torch.Generator) -> Any:
    """An untrained network in float64, one input."""
    if cell == "S4":
        return memaudit.wrap(S4Stack(layers, generator).double(), input_size=1)
    made = CELLS[cell](1, UNITS, num_layers=layers, batch_first=True, dtype=torch.float64)
    return filled(made, UNITS, generator)


def slope(curve: Curve) -> float:
    """The rate beta of exp(-beta t), by least squares over the lags well above the floor."""
    above = (curve.lags >= SETTLED) & (curve.values > 100 * curve.floor)
    return -float(np.polyfit(curve.lags[above], np.log(curve.values[above]), 1)[0])


def measure(
    cell: str, layers: int, horizon: int, draw: torch.Generator, tick: Callable[[], None]
) -> dict[str, tuple[np.ndarray, np.ndarray, list[float]]]:
    """Query → lags, the values of all repeats, and their slopes."""
    curves: dict[str, list[Curve]] = {query: [] for query in QUERIES}
    options = {"queries": QUERIES, "probes": [], "amplitudes": [1.0], "level": "quick"}
    for _ in range(REPEATS):
        report = memaudit.scan(random_model(cell, layers, draw), horizon=horizon, **options)
        for query in QUERIES:
            curves[query].append(report.memory[query])
        tick()
    return {
        query: (some[0].lags, np.stack([c.values for c in some]), [slope(c) for c in some])
        for query, some in curves.items()
    }


def run(effort: Effort) -> Outcome:
    """All cells at all depths, with both inputs."""
    draw = torch.Generator().manual_seed(effort.seed)
    plan = {cell: ((1, 2, 3, 4), 128) for cell in CELLS} | {"S4": ((1, 2, 3), 2000)}
    total, done = sum(len(depths) for depths, _ in plan.values()) * REPEATS, 0

    def tick() -> None:
        nonlocal done
        done += 1
        effort.tick(done, total)

    titles = [f"{cell} - {query.capitalize()} memory" for cell in plan for query in QUERIES]
    figure, axes = panels(*titles)
    numbers, apart = [], {}
    for number, (cell, (depths, horizon)) in enumerate(plan.items()):
        for layers in depths:
            found = measure(cell, layers, horizon, draw, tick)
            rates = {query: float(np.median(found[query][2])) for query in QUERIES}
            name = f"{cell}, {layers} layer{'s' if layers > 1 else ''}"
            apart[name] = abs(rates["heaviside"] / rates["impulse"] - 1)
            numbers += [Number(f"{name}: rate, {query}", rates[query]) for query in QUERIES]
            for k, query in enumerate(QUERIES):
                _draw(axes[2 * number + k], layers, *found[query][:2])
    worst = max(apart, key=lambda name: apart[name])
    return Outcome(
        holds=all(off <= ALIKE for off in apart.values()),
        reason=f"median rates of Heaviside and impulse memory differ by {apart[worst]:.1%} at "
        f"most ({worst}), by {np.median(list(apart.values())):.1%} in the middle; at most "
        f"{ALIKE:.0%} counts as equal",
        numbers=tuple(numbers),
        settings={
            "repeats": REPEATS,
            "units": UNITS,
            "S4": f"width {WIDTH}, {STATES} states, GELU and mixing between layers",
            "amplitude": 1.0,
            "lags": {cell: horizon for cell, (_, horizon) in plan.items()},
        },
        figure=figure,
    )


def _draw(at, layers: int, lags: np.ndarray, values: np.ndarray) -> None:
    """The geometric mean over the repeats, and one standard deviation around it."""
    logs = np.log(np.maximum(values, 1e-17))
    middle, spread = logs.mean(0), logs.std(0)
    colour = COLOURS[layers - 1]
    curve = {f"layers = {layers}": (lags, np.exp(middle))}
    lines(at, curve, x="t", y="memory", logs="y", color=colour)
    at.fill_between(lags, np.exp(middle - spread), np.exp(middle + spread), color=colour, alpha=0.2)


ROW = Row(
    id="I-F10a-h",
    title="Heaviside and impulse memory of random networks",
    claim="both memories fall with the same slope at every depth of RNN, GRU, LSTM and S4",
    run=run,
)
