"""Small models for the checks."""

from __future__ import annotations

from collections.abc import Callable

import torch

Model = Callable[[torch.Tensor], torch.Tensor]

#: Lags of the checks: short enough to be quick, long enough for every kernel.
HORIZON = 48


def filtered(kernel: torch.Tensor, *, pooled: bool = False) -> Model:
    """y_t = 3 + sum_s rho(s)·u_{t-s}; the constant must not reach the curve."""

    def respond(u: torch.Tensor) -> torch.Tensor:
        y = u.new_full((*u.shape[:2], 1), 3.0)
        for s, rho in enumerate(kernel[: u.shape[1]]):
            y[:, s:] += u[:, : u.shape[1] - s] @ rho[:, None]
        return y[:, -1] if pooled else y

    return respond


def tanh_recurrence(u: torch.Tensor) -> torch.Tensor:
    """h_t = tanh(0.8 P h_{t-1} + u_t), where P turns the state around; the answer is h_t."""
    state, answers = torch.zeros_like(u[:, 0]), []
    for step in u.unbind(1):
        state = torch.tanh(0.8 * state.flip(-1) + step)
        answers.append(state)
    return torch.stack(answers, 1)
