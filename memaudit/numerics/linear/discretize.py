"""From continuous to discrete time: what one step of length dt makes of a mode and its input."""

from __future__ import annotations

import torch
from torch import Tensor

#: zoh holds the input over a step, bilinear is the trapezoidal rule, dirac hits it at once.
DISCRETIZATIONS = ("zoh", "bilinear", "dirac")


def discretize(rates: Tensor, dt: Tensor, *, how: str) -> tuple[Tensor, Tensor]:
    """The eigenvalue and the gain of the input of every mode, for x' = rate·x + b·u.

    In discrete time x_t = eigenvalue · x_{t-1} + gain · b · u_t. Both broadcast.
    """
    product = rates * dt
    if how == "zoh":
        # expm1 keeps the digits that exp(.) - 1 loses; a mode that does not move integrates.
        still = rates == 0
        gain = torch.expm1(product) / torch.where(still, 1.0, rates)
        return product.exp(), torch.where(still, dt.to(gain.dtype), gain)
    if how == "bilinear":
        below = 1.0 - product / 2.0
        return (1.0 + product / 2.0) / below, dt / below
    if how == "dirac":
        return product.exp(), torch.ones_like(product)
    raise ValueError(f"{how!r} is none of {', '.join(DISCRETIZATIONS)}")
