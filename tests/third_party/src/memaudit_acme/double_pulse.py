"""The double-pulse query: what an input leaves behind when another follows at once."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from memaudit.interfaces import AbstractQuery


@dataclass(frozen=True, slots=True)
class DoublePulse(AbstractQuery):
    """Is the first of two equal inputs still remembered after the second?

    Feeds u_0 = u_1 = x and zeros afterwards, subtracts the answer to u_1 = x alone, and reads
    rho(t) = y_t: on a linear model the impulse response, elsewhere what the second input spared.
    """

    name = "double-pulse"
    summary = "two inputs in a row; what the first one adds to the answer"
    first_lag = 1

    def inputs(self, x: torch.Tensor, horizon: int) -> torch.Tensor:
        sequence = x.new_zeros(len(x), horizon, x.shape[1])
        sequence[:, :2] = x[:, None]
        return sequence

    def reference(self, x: torch.Tensor, horizon: int) -> torch.Tensor | None:
        sequence = self.inputs(x, horizon)
        sequence[:, 0] = 0.0
        return sequence

    def moments(self, lags: torch.Tensor, horizon: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        return lags, None
