"""The scale of gradients that a reparameterization lets through."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Forward = Callable[[Tensor], Tensor]

#: Raw weights among which a stretch without a gradient shows, and none of which is zero.
_TRIED = (-4.05, 3.95, 81)


def derivative(forward: Forward, w: Tensor) -> Tensor:
    """f'(w), entry by entry, in float64."""
    with torch.enable_grad():
        raw = w.detach().double().requires_grad_()
        (slope,) = torch.autograd.grad(forward(raw).sum(), raw)
    return slope


def gradient_scale(forward: Forward, w: Tensor, *, time: str) -> Tensor:
    """|f'| / f² in continuous time, |f'| / (1 - f)² in discrete time (StableSSM, Theorem 3.4).

    Infinite on the boundary, unless f' is zero there: what does not move has no scale.
    """
    value = forward(w.double()).detach()
    away = value if time == "continuous" else 1.0 - value
    slope = derivative(forward, w).abs()
    return torch.where(slope == 0.0, slope, slope / away.square())


def has_flat_stretch(forward: Forward) -> bool:
    """Whether f is constant somewhere: a weight that gets there has no gradient to come back."""
    w = torch.linspace(*_TRIED, dtype=torch.float64)
    return bool((derivative(forward, w) == 0.0).any())
