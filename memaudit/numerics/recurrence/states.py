"""The states that a recurrence goes through, in float64 where it can be stepped in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from memaudit.dynamics import AbstractDynamics


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
