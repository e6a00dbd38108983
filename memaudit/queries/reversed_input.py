"""The reversed query: how fast a settled answer falls apart once its input is gone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from memaudit.contracts import AbstractQuery

if TYPE_CHECKING:
    import torch

#: A prefix of one window that did not settle is tried once more with this many. A state that
#: still moves then is on a cycle or worse, and more steps would only cost.
LONG_PREFIX = 4
#: Steps before lag 0 on a linear model, which need not settle.
SHORT_PREFIX = 8


@dataclass(frozen=True, slots=True)
class ReversedInput(AbstractQuery):
    """How fast does a settled answer fall apart once its input is gone?

    Feeds u_t = x for -K <= t < 0 and zeros for t >= 0, and reads rho(t) = y_{t+1} - y_t. One run
    gives every lag, so the cost is linear in the horizon. A linear model need not settle in the
    K steps: subtracting the step that goes on removes what is still on its way, exactly.
    """

    name = "reversed"
    summary = "a long step that ends; change of the answer from one lag to the next"

    windows: int = 1
    linear: bool = False

    def prefix(self, horizon: int) -> int:
        return SHORT_PREFIX if self.linear else self.windows * (horizon + 1)

    def inputs(self, x: torch.Tensor, horizon: int) -> torch.Tensor:
        from memaudit.numerics.signals import pulse

        before = self.prefix(horizon)
        return pulse(x, on=before, length=before + horizon + 1)

    def reference(self, x: torch.Tensor, horizon: int) -> torch.Tensor | None:
        if not self.linear:
            return None
        return x[:, None].expand(-1, self.prefix(horizon) + horizon + 1, -1)

    def on_linear(self) -> Self:
        return replace(self, linear=True)

    def moments(self, lags: torch.Tensor, horizon: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        start = self.prefix(horizon)
        return lags + start + 1, lags + start

    def lengthened(self, horizon: int) -> Self | None:
        if self.linear or self.windows >= LONG_PREFIX:
            return None
        return replace(self, windows=LONG_PREFIX)
