"""How much a recurrence forgets at every step, with step sizes and rates kept apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """Step sizes and the rates that they are multiplied by; the decay is exp(-size · rate).

    `sizes` is (B,T,…) over data and (…) at rest. `rates` is None for ones, (C,) for one rate per
    channel, or (C,N) for N modes per channel: of Mamba-1 only the (B,T,C) step sizes are held,
    never (B,T,C,N).
    """

    sizes: Tensor
    rates: Tensor | None = None

    def decays(self) -> Tensor:
        """The factor on every mode at every step, N modes of a channel on an axis of their own."""
        if self.rates is None:
            return torch.exp(-self.sizes)
        sizes = self.sizes[..., None] if self.rates.ndim == 2 else self.sizes
        return torch.exp(-sizes * self.rates)

    def quantile(self, share: float) -> Steps:
        """Every channel at that share of its own step sizes over all tokens, in float64."""
        tokens = self.sizes.detach().flatten(0, 1).cpu().double().numpy()
        # A value that occurred: between a finite step and an infinite one there is no mean.
        chosen = torch.from_numpy(np.quantile(tokens, share, axis=0, method="nearest"))
        return Steps(chosen, None if self.rates is None else self.rates.detach().cpu().double())


def side_by_side(parts: Sequence[Steps]) -> Steps:
    """The heads of one layer, heard one after the other, as channels of one."""
    if len(parts) == 1:
        return parts[0]
    rates = [part.rates for part in parts if part.rates is not None]
    sizes = torch.cat([part.sizes for part in parts], -1)
    return Steps(sizes, torch.cat(rates) if len(rates) == len(parts) else None)


def one_after_the_other(calls: Sequence[Steps]) -> Steps:
    """Several calls of one layer as rows of a batch; calls of different lengths as one row."""
    if len(calls) == 1:
        return calls[0]
    if len({call.sizes.shape[1] for call in calls}) == 1:
        return Steps(torch.cat([call.sizes for call in calls]), calls[0].rates)
    rows = [call.sizes.flatten(0, 1) for call in calls]
    return Steps(torch.cat(rows)[None], calls[0].rates)
