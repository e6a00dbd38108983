"""Do nearby states of a recurrence part or meet along a trajectory?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from memaudit.numerics.recurrence.states import trajectory

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from memaudit.dynamics import AbstractDynamics, StateBlock

#: Directions per block; the second keeps the first from turning with a pair of complex modes.
DIRECTIONS = 2
SEGMENTS = 8


@dataclass(frozen=True, slots=True)
class Exponent:
    """The largest Lyapunov exponent per step; the interval spans two standard errors."""

    value: float
    interval: tuple[float, float]


def lyapunov(
    dynamics: AbstractDynamics,
    inputs: Tensor,
    *,
    generator: torch.Generator,
    states: Tensor | None = None,
    tick: Callable[[int, int], None] | None = None,
) -> dict[str, Exponent]:
    """The largest exponent of every block under the inputs (T,D), by orthogonal directions.

    `states` (T,n) are those of `trajectory`, if they are there already. Directions are carried from
    the last step to the first by transposed Jacobians: their exponents are the same. An eighth at
    each end is left out, where the state leaves its start and the directions find their way. Blocks
    that forget a state at once, and trajectories that are not finite, have no exponent.
    """
    states = trajectory(dynamics, inputs) if states is None else states
    steps = len(states)
    if steps < max(len(inputs), 4 * SEGMENTS):
        return {}
    inputs = inputs.to(states)
    frames = {
        layer: _frame(block, generator).to(states) for layer, block in dynamics.blocks.items()
    }
    grown = {layer: np.zeros((steps, frame.shape[1])) for layer, frame in frames.items()}
    for done, t in enumerate(reversed(range(steps))):
        frames = _pulled(dynamics, states[t], inputs[t], frames)
        for layer, frame in frames.items():
            frames[layer], triangle = torch.linalg.qr(frame)
            grown[layer][t] = triangle.diagonal().abs().double().cpu().numpy()
        if tick is not None:
            tick(done + 1, steps)
    kept = slice(steps // 8, steps - steps // 8)
    found = {layer: _exponent(sizes[kept]) for layer, sizes in grown.items()}
    return {layer: exponent for layer, exponent in found.items() if exponent is not None}


def _frame(block: StateBlock, generator: torch.Generator) -> Tensor:
    """Orthogonal directions (m,k) to begin with."""
    size = block.stop - block.start
    drawn = torch.randn(size, min(DIRECTIONS, size), generator=generator, dtype=torch.float64)
    return torch.linalg.qr(drawn)[0]


def _pulled(
    dynamics: AbstractDynamics, state: Tensor, u: Tensor, frames: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Every frame times the transposed Jacobian of its own block, all in one pass."""
    rows = sum(frame.shape[1] for frame in frames.values())
    weights = state.new_zeros(rows, len(state))
    places, row = {}, 0
    for layer, frame in frames.items():
        block = dynamics.blocks[layer]
        places[layer] = slice(row, row + frame.shape[1]), slice(block.start, block.stop)
        weights[places[layer]] = frame.T
        row += frame.shape[1]
    with torch.enable_grad():
        copies = state.detach().expand(rows, -1).clone().requires_grad_()
        after = dynamics.step(copies, u.detach().expand(rows, -1))
    if not after.requires_grad:
        return {layer: torch.zeros_like(frame) for layer, frame in frames.items()}
    (pulled,) = torch.autograd.grad(after, copies, weights)
    return {layer: pulled[place].T for layer, place in places.items()}


def _exponent(sizes: np.ndarray) -> Exponent | None:
    """From the factors (T,k) by which the directions grew."""
    if not np.isfinite(sizes).all() or not (sizes[:, 0] > 0).all():
        return None
    logs = np.log(np.maximum(sizes, np.finfo(np.float64).tiny))
    along = logs[:, int(logs.mean(0).argmax())]
    return exponent_of(along)


def exponent_of(logs: np.ndarray) -> Exponent:
    """The mean growth per step, and how sure that is from segments of the trajectory."""
    value = float(logs.mean())
    means = [float(segment.mean()) for segment in np.array_split(logs, min(SEGMENTS, len(logs)))]
    spread = float(np.std(means, ddof=1)) if len(means) > 1 else 0.0
    reach = 2.0 * spread / math.sqrt(len(means))
    return Exponent(value, (value - reach, value + reach))
