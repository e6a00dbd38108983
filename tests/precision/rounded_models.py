"""Small recurrences whose eigenvalues are their own weights."""

from __future__ import annotations

import torch
from torch import nn


class Diagonal(nn.Module):
    """h <- lam h + u, y = sum h, with lam stored as it is."""

    memaudit_roles = {"lam": "recurrent/diagonal"}  # noqa: RUF012

    def __init__(self, *lam: float, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.lam = nn.Parameter(torch.tensor(lam, dtype=dtype))
        self.gain = nn.Parameter(torch.ones(1, dtype=dtype))

    def modes(self) -> torch.Tensor:
        return self.lam

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        state = u.new_zeros(len(u), len(self.lam))
        answers = []
        for step in u.unbind(1):
            state = self.lam * state + step[:, :1]
            answers.append(self.gain * state.sum(1, keepdim=True))
        return torch.stack(answers, 1)


class Mute(Diagonal):
    """The same recurrence, of which nobody says what is recurrent, and no weight is known."""

    memaudit_roles = {}  # noqa: RUF012


class Saturating(nn.Module):
    """h <- tanh(w h + u): its state of rest is 0 for |w| <= 1, a cycle for w < -1."""

    memaudit_roles = {"w": "recurrent/matrix"}  # noqa: RUF012

    def __init__(self, w: float) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([[w]], dtype=torch.float64))

    def initial_state(self) -> torch.Tensor:
        return torch.full((1,), 0.1 if self.w.item() < -1 else 0.0, dtype=torch.float64)

    def step(self, state: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        return torch.tanh(state @ self.w + u)

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        state = self.initial_state().expand(len(u), 1)
        answers = []
        for step in u.unbind(1):
            state = self.step(state, step)
            answers.append(state)
        return torch.stack(answers, 1)


class Averaging(nn.Module):
    """A weight times the mean of the inputs, once or at every step: no recurrence."""

    def __init__(self, *, pooled: bool) -> None:
        super().__init__()
        self.pooled = pooled
        self.gain = nn.Parameter(torch.full((1,), 0.3, dtype=torch.float64))

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        return self.gain * (u.mean(1) if self.pooled else u)
