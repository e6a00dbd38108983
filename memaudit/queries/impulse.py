"""The impulse query: what is left of a single input after t steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memaudit.contracts import AbstractQuery

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Impulse(AbstractQuery):
    """What is left of a single input after t steps?

    Feeds u_0 = x and zeros afterwards and reads rho(t) = y_t. Lag 0 is the present, not memory.
    """

    name = "impulse"
    summary = "one input, then zeros; the answer itself"
    first_lag = 1

    def inputs(self, x: torch.Tensor, horizon: int) -> torch.Tensor:
        from memaudit.numerics.signals import pulse

        return pulse(x, on=1, length=horizon)

    def moments(self, lags: torch.Tensor, horizon: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        return lags, None
