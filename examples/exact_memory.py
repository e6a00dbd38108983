"""The memory of a linear state-space layer, from its weights and from its answers.

python examples/exact_memory.py [--states 16] [--horizon 512]

For y_t = C x_t with x_t = A x_{t-1} + B u_t the memory function is |C A^t B|: no audit is needed,
so here is what one finds where the answer is known.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch

import memaudit
from memaudit_ssm import LRU, S4D, Core

WIDTH = 4


def layers(states: int) -> dict[str, Core]:
    """Untrained layers, the same every time."""
    draw = torch.Generator().manual_seed(0)
    s4d = S4D(WIDTH, states, generator=draw)
    return {"S4D": s4d.double(), "LRU": LRU(WIDTH, states, generator=draw).double()}


def exact(layer: Core, horizon: int) -> torch.Tensor:
    """The largest answer to any input with |x| <= 1, at the lags 1 … horizon - 1."""
    (system,) = layer.systems().values()
    kernel = system.kernel(1, horizon).abs()
    # A bank keeps its inputs apart; otherwise their worst signs add up.
    return (kernel.flatten(1) if system.banked else kernel.sum(2)).amax(1)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print both, and the slowest eigenvalue."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--states", type=int, default=16)
    parser.add_argument("--horizon", type=int, default=512)
    chosen = parser.parse_args(arguments)
    for name, layer in layers(chosen.states).items():
        with torch.no_grad():
            formula = exact(layer, chosen.horizon).numpy()
            slowest = float(layer.modes().abs().max())
        subject = memaudit.wrap(layer, input_size=WIDTH)
        curve = memaudit.scan(subject, horizon=chosen.horizon, queries=["impulse"]).memory[
            "impulse"
        ]
        off = abs(curve.values[1:] - formula).max() / formula.max()
        print(f"{name}: slowest |eigenvalue| {slowest:.4f}, {curve}")
        print(f"{'':{len(name)}}  measured and exact differ by {off:.1e} of the largest value")


if __name__ == "__main__":
    main()
