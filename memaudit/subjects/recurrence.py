"""The states that a nonlinear recurrence goes through, and where it comes to rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from memaudit.interfaces import AbstractDynamics

#: Even a state that stands still is observed for so long: it may be a saddle that it leaves late.
FEWEST_STEPS = 512
MOST_STEPS = 8192
#: Numbers in a state from which on fewer steps are run, in proportion.
LARGE_STATE = 512
#: Steps between two looks, and the last of them that must stand still.
CHECK_EVERY, STILL = 64, 8
#: Relative changes, in units of the dtype's eps, of a state at rest and of one that flutters.
STILL_EPS, FLUTTER_EPS = 8, 64


def first_state(dynamics: AbstractDynamics) -> Tensor:
    """The state (n,) before the first input, in float64 if a step takes and keeps that."""
    own = dynamics.initial().detach()
    try:
        wide = own.double()
        with torch.no_grad():
            after = dynamics.step(wide[None], wide.new_zeros(1, dynamics.width))
    except (RuntimeError, TypeError):  # weights of another dtype, or a device without float64
        return own
    return wide if after.dtype == torch.float64 else own


def trajectory(dynamics: AbstractDynamics, inputs: Tensor) -> Tensor:
    """The states (T,n) in which the inputs (T,D) arrive; shorter where they are not finite."""
    state, states = first_state(dynamics), []
    inputs = inputs.to(state.device, state.dtype)
    with torch.no_grad():
        for u in inputs:
            if not bool(torch.isfinite(state).all()):
                break
            states.append(state)
            state = dynamics.step(state[None], u[None])[0]
    return torch.stack(states) if states else state.new_zeros(0, len(state))


@dataclass(frozen=True, slots=True, eq=False)
class Settled:
    """The state (n,) in the end, after so many steps; `motion` says how it still moves.

    `motion` is empty for a state at rest.
    """

    state: Tensor
    steps: int
    motion: str = ""

    @property
    def at_rest(self) -> bool:
        """Whether the state stopped moving."""
        return not self.motion


def settle(
    dynamics: AbstractDynamics,
    u: Tensor,
    *,
    steps: int = MOST_STEPS,
    tick: Callable[[int, int], None] | None = None,
) -> list[Settled]:
    """Run the step under every constant input u (B,D) until the state stops moving.

    At rest is a state that moves by no more than 8 eps of the largest number it has held, or that
    flutters around a mean by its last digits.
    """
    start = first_state(dynamics)
    u = u.to(start.device, start.dtype)
    most = max(FEWEST_STEPS, int(steps * min(1.0, LARGE_STATE / len(start))))
    state = start.expand(len(u), -1)
    size = start.abs().amax().expand(len(u))
    states = state[None]
    found: dict[int, Settled] = {}
    done = 0
    while done < most and len(found) < len(u):
        with torch.no_grad():
            states = _run(dynamics, state, u)
        done += CHECK_EVERY
        before, state = state, states[-1].clone()
        size = torch.maximum(size, states.abs().amax((0, 2)).nan_to_num(posinf=0.0))
        for row in (row for row in range(len(u)) if row not in found):
            path = torch.cat([before[row : row + 1], states[:, row]])
            found_row = _judged(path, done, float(size[row]))
            if found_row is not None and (done >= FEWEST_STEPS or "finite" in found_row.motion):
                found[row] = found_row
        for row in found:
            state[row] = found[row].state
        if tick is not None:
            tick(done, most)
    return [found.get(row) or _moving(states[:, row], done, size[row]) for row in range(len(u))]


def _run(dynamics: AbstractDynamics, state: Tensor, u: Tensor) -> Tensor:
    """The next states (CHECK_EVERY,B,n)."""
    states = []
    for _ in range(CHECK_EVERY):
        state = dynamics.step(state, u)
        states.append(state)
    return torch.stack(states)


def _judged(path: Tensor, done: int, size: float) -> Settled | None:
    """What became of a row with the path (CHECK_EVERY + 1,n), None while it is on its way."""
    finite = torch.isfinite(path).all(1)
    if not bool(finite.all()):
        # A start that is not finite itself has nothing before it.
        last = max(int(finite.long().argmin()) - 1, 0)
        return Settled(path[last], done - CHECK_EVERY + last, "the state is not finite any more")
    eps = torch.finfo(path.dtype).eps * size
    if bool((path[-STILL:] - path[-STILL - 1 : -1]).abs().amax() <= STILL_EPS * eps):
        return Settled(path[-1], done)
    if bool((path - path.mean(0)).abs().amax() <= FLUTTER_EPS * eps):
        return Settled(path[-1], done)
    for period in range(2, CHECK_EVERY // 2):
        if bool((path[period:] - path[:-period])[-period:].abs().amax() <= STILL_EPS * eps):
            return Settled(path[-1], done, f"the state goes round in a cycle of {period} steps")
    return None


def _moving(states: Tensor, done: int, size: Tensor) -> Settled:
    moved = float((states[-1] - states[-2]).abs().amax()) / max(float(size), 1e-300)
    return Settled(states[-1], done, f"the state still moves by {moved:.1e} of its size a step")
