"""S-F7: an MLP is a stack of two state-space layers without recurrence."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import memaudit
from examples.reproduce.drawing import lines, panels
from examples.reproduce.row import Effort, Number, Outcome, Row
from examples.reproduce.stablessm.shallow import ShallowSSM
from memaudit.numerics.signals import seeded

#: Inputs, hidden units and outputs of the MLP.
SIZES = (4, 32, 3)
#: Products of the same numbers may be added in another order.
EXACT = 1e-14


def perceptron(generator: torch.Generator) -> nn.Sequential:
    """A shallow MLP with a tanh, all weights random."""
    inputs, hidden, outputs = SIZES
    made = nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, outputs)).double()
    with torch.no_grad():
        for weight in made.parameters():
            weight.normal_(0.0, weight.shape[-1] ** -0.5, generator=generator)
    return made


def stack(mlp: nn.Sequential, recurrent: float) -> nn.Sequential:
    """Two layers of equation (2) with the weights of an MLP and W = `recurrent` in both."""
    layers = []
    for layer, act in ((mlp[0], torch.tanh), (mlp[2], nn.Identity())):
        width = layer.out_features
        lam = torch.full((width,), recurrent, dtype=torch.float64)
        eye = torch.eye(width, dtype=torch.float64)
        layers.append(ShallowSSM(lam, layer.weight.detach(), layer.bias.detach(), eye, act))
    return nn.Sequential(*layers)


def memory(model: nn.Module) -> Any:
    """The memory function under a step."""
    subject = memaudit.wrap(model, input_size=SIZES[0])
    report = memaudit.scan(subject, horizon=64, queries=["heaviside"], probes=[], level="quick")
    return report.memory["heaviside"]


def run(effort: Effort) -> Outcome:
    """The two computations side by side, and what an audit says of each."""
    generator = seeded(effort.seed)
    mlp = perceptron(generator)
    u = torch.randn(16, 50, SIZES[0], generator=generator, dtype=torch.float64)
    realised = stack(mlp, 0.0)
    with torch.no_grad():
        wanted: Tensor = mlp(u)
        off = float((realised(u) - wanted).abs().max())
        other = float((stack(mlp, 0.5)(u) - wanted).abs().max())
        # Equation (2) is written in continuous time, where W = 0 sums its inputs up: one step of
        # size one of dh/dt = U x + b is h_k = h_{k-1} + U x_k + b.
        summed = float((stack(mlp, 1.0)(u) - wanted).abs().max())
    kinds = {w: memory(stack(mlp, w)) for w in (0.0, 0.5, 1.0)}
    verdict = kinds[0.0].decay.kind
    figure, (at,) = panels("memory of the stack under a step")
    curves = {}
    for w, curve in kinds.items():
        told = {0.0: "W = 0 (MLP)", 0.5: "W = 0.5", 1.0: "dh/dt = U x + b"}[w]
        curves[told] = (curve.lags.tolist(), curve.values.clip(1e-18).tolist())
    lines(at, curves, x="lag", y="|y(t+1) - y(t)| / |x|", logs="y")
    return Outcome(
        holds=off < EXACT and verdict == "memoryless",
        reason=f"the stack with W = 0 differs from the MLP by {off:.1g} at most, and the audit "
        f"calls it {verdict}; with W = 0.5 it differs by {other:.2g}",
        numbers=(
            Number("two layers with W = 0 against the MLP, largest difference", off, 0.0),
            Number("decay of its memory", verdict),
            Number("two layers with W = 0.5 against the MLP", other),
            Number("decay of its memory with W = 0.5", kinds[0.5].decay.kind),
            Number("W = 0 in continuous time, steps of one, against the MLP", summed),
        ),
        settings={"sizes": SIZES, "activation": "tanh", "steps": 50, "inputs": 16},
        figure=figure,
        errata="equation (2) is in continuous time, where W = 0 integrates its inputs; the figure "
        "is true of the discrete recurrence h_k = W h_{k-1} + U x_k + b",
    )


ROW = Row(
    id="S-F7",
    title="An MLP as two layers",
    claim="an MLP is realised by two state-space layers with zero recurrent weights, exactly",
    run=run,
)
