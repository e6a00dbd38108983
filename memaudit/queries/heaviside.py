"""The Heaviside query: how fast the model forgets that a step happened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memaudit.contracts import AbstractQuery

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Heaviside(AbstractQuery):
    """How fast does the model forget that a step happened?

    Feeds u_t = x for t >= 0 and reads rho(t) = y_{t+1} - y_t.
    """

    name = "heaviside"
    summary = "step input; change of the answer from one lag to the next"

    def inputs(self, x: torch.Tensor, horizon: int) -> torch.Tensor:
        return x[:, None].expand(-1, horizon + 1, -1)

    def moments(self, lags: torch.Tensor, horizon: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        return lags + 1, lags
