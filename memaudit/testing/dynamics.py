"""The laws of a recurrence inside a model."""

from __future__ import annotations

from itertools import pairwise

import torch

from memaudit.contracts import AbstractDynamics
from memaudit.testing.law import draw, must

#: Rows of the trials, and steps that lead from the first state to others.
ROWS, STEPS = 3, 8


def check_dynamics(dynamics: AbstractDynamics) -> None:
    """The laws of `AbstractDynamics`: shapes, rows by themselves, gradients, blocks in order."""
    must(isinstance(dynamics, AbstractDynamics), f"{dynamics!r} is no AbstractDynamics")
    must(isinstance(dynamics.width, int) and dynamics.width > 0, f"width is {dynamics.width!r}")
    first = dynamics.initial()
    must(first.ndim == 1, f"the first state has the shape {tuple(first.shape)}, not (n,)")
    must(first.is_floating_point(), f"the first state is of {first.dtype}")
    must(bool(torch.isfinite(first).all()), "the first state is not finite")
    _check_cuts(dynamics, len(first))
    states, u = _somewhere(dynamics, first)
    with torch.no_grad():
        _check_rows(dynamics, states, u)
    _check_gradients(dynamics, states, u)


def _check_cuts(dynamics: AbstractDynamics, size: int) -> None:
    blocks = list(dynamics.blocks.values())
    must(bool(blocks), "there is no block")
    ends = [0, *(block.stop for block in blocks)]
    whole = [block.start for block in blocks] == ends[:-1] and ends[-1] == size
    must(whole, f"the blocks do not cut the {size} numbers of the state without gaps")
    must(all(low < high for low, high in pairwise(ends)), "a block is empty")
    for layer, block in dynamics.blocks.items():
        must(bool(block.cell and block.parameterization), f"{layer} has no cell or no form")


def _somewhere(
    dynamics: AbstractDynamics, first: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """States (B,n) a few random steps away from the first one, and inputs (B,D) for one more."""
    state = first.expand(ROWS, -1).clone()
    with torch.no_grad():
        for seed in range(STEPS):
            u = draw(ROWS, dynamics.width, seed=seed).to(first)
            after = dynamics.step(state, u)
            right = after.shape == state.shape and after.dtype == state.dtype
            must(right, f"step answers {tuple(state.shape)} by {tuple(after.shape)} {after.dtype}")
            state = after
    return state, draw(ROWS, dynamics.width, seed=STEPS).to(first)


def _check_rows(dynamics: AbstractDynamics, states: torch.Tensor, u: torch.Tensor) -> None:
    kept, fed = states.clone(), u.clone()
    after = dynamics.step(states, u)
    must(torch.equal(states, kept) and torch.equal(u, fed), "step changes what it is given")
    limit = 64 * torch.finfo(states.dtype).eps * max(1.0, float(after.abs().amax()))
    alone = torch.cat([dynamics.step(states[i : i + 1], u[i : i + 1]) for i in range(ROWS)])
    off = float((alone - after).abs().amax())
    must(off <= limit, f"a row alone and in a batch differ by {off:.2g}")
    again = float((dynamics.step(states, u) - after).abs().amax())
    must(again == 0.0, f"the same step twice differs by {again:.2g}")


def _check_gradients(dynamics: AbstractDynamics, states: torch.Tensor, u: torch.Tensor) -> None:
    """The gradient is that of the step, and no block reads the old state of one behind it."""
    for layer, block in dynamics.blocks.items():
        with torch.enable_grad():
            copies = states.clone().requires_grad_()
            after = dynamics.step(copies, u)
            must(after.requires_grad, "step cannot be differentiated by the state")
            own = after[:, block.start : block.stop]
            weights = draw(ROWS, own.shape[1], seed=1).to(own)
            (pulled,) = torch.autograd.grad(own, copies, weights)
        ahead = pulled[:, block.stop :].abs().sum()
        must(float(ahead) == 0.0, f"{layer} depends on the old state of a block behind it")
        _check_slope(dynamics, states, u, (block.start, block.stop), weights, pulled)


def _check_slope(
    dynamics: AbstractDynamics,
    states: torch.Tensor,
    u: torch.Tensor,
    place: tuple[int, int],
    weights: torch.Tensor,
    pulled: torch.Tensor,
) -> None:
    """Central differences along a random direction, which only a wrong gradient is far from."""
    direction = draw(*states.shape, seed=2).to(states)
    # The cube root of eps balances rounding against curvature.
    width = torch.finfo(states.dtype).eps ** (1 / 3)
    with torch.no_grad():
        higher = dynamics.step(states + width * direction, u)[:, slice(*place)]
        lower = dynamics.step(states - width * direction, u)[:, slice(*place)]
    seen = ((higher - lower) / (2 * width) * weights).sum(1)
    told = (pulled * direction).sum(1)
    size = 1.0 + float((pulled * direction).abs().sum(1).amax())
    off = float((seen - told).abs().amax()) / size
    must(off <= 100 * width, f"gradients and differences of the step are apart by {off:.2g}")
