"""The shallow state-space model of equation (2): linear states, a nonlinear readout."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from memaudit.numerics.scans import linear_scan


class ShallowSSM(nn.Module):
    """h_k = lambda h_{k-1} + U x_k + b and y_k = C act(h_k), from h_{-1} = 0.

    lambda (m,), U (m,D), b (m,) and C (M,m); `held` makes one from a continuous system.
    """

    memaudit_roles = {  # noqa: RUF012
        "lam": "recurrent/diagonal",
        "U": "input/matrix",
        "b": "other/vector",
        "C": "readout/matrix",
    }

    def __init__(self, lam: Tensor, U: Tensor, b: Tensor, C: Tensor, act: Any = torch.tanh) -> None:  # noqa: N803
        super().__init__()
        self.lam, self.U, self.b, self.C = (nn.Parameter(t.clone()) for t in (lam, U, b, C))
        self.act = act

    @classmethod
    def held(cls, rates: Tensor, U: Tensor, b: Tensor, C: Tensor, *, step: float) -> ShallowSSM:  # noqa: N803
        """dh/dt = Lambda h + U x + b with inputs that are held over every step, exactly."""
        gain = torch.expm1(step * rates) / rates
        return cls(torch.exp(step * rates), gain[:, None] * U, gain * b, C)

    def modes(self) -> Tensor:
        """The eigenvalues (m,) of one step."""
        return self.lam

    def forward(self, u: Tensor) -> Tensor:
        """The answers (B,T,M) to (B,T,D)."""
        driven = u @ self.U.mT + self.b
        states, _ = linear_scan(self.lam.expand_as(driven), driven)
        return self.act(states) @ self.C.mT
