"""Which eigenvalues are stable, and which reachable one is the nearest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from memaudit.reparam import AbstractReparam

#: What is moved inside ends this far from the boundary: the distance at which scan warns.
MARGIN = 1e-4
#: Candidates among which the nearest is chosen, and the fastest of them.
_COUNT, _FASTEST = 20001, 1e4


def decays(lam: Tensor, time: str) -> Tensor:
    """Which modes are stable."""
    return lam < 0.0 if time == "continuous" else lam.abs() < 1.0


def nearest_reached(form: AbstractReparam, lam: Tensor) -> Tensor:
    """For every eigenvalue the nearest that the form reaches, clear of the boundary."""
    if form.time == "continuous":
        low, high = torch.log10(torch.tensor([MARGIN, _FASTEST], dtype=torch.float64)).tolist()
        known = -torch.logspace(high, low, _COUNT, dtype=torch.float64)
    else:
        known = torch.linspace(MARGIN - 1.0, 1.0 - MARGIN, _COUNT, dtype=torch.float64)
    known = known[form.contains(known)]
    asked = lam.double().contiguous()
    place = torch.searchsorted(known, asked).clamp(1, len(known) - 1)
    below, above = known[place - 1], known[place]
    return torch.where(asked - below <= above - asked, below, above).to(lam.dtype)
