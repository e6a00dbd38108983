"""How far raw weights may go before a stable form is lost to rounding."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

Forward = Callable[[Tensor], Tensor]

#: No raw weight is looked at beyond this.
FARTHEST = 1e18
_HALVINGS = 80


def raw_domain(
    forward: Forward,
    w: Tensor,
    *,
    time: str,
    stored: Forward | None = None,
    apart: float = 0.0,
) -> tuple[float, float]:
    """The interval around the raw weights w in which f and f' are numbers, and f strictly stable.

    `stored` makes of w what a checkpoint holds; it must be a number with a slope there, too.
    `apart` is how far from one discrete eigenvalues are kept, if rounding moves them by more than
    that of w.

    Far out every stable form reaches the boundary by rounding, or overflows. In continuous time
    rates are kept between the rounding of one and its inverse, in discrete time eigenvalues that
    far from one, unless those of w are beyond that already.
    """
    rounding = torch.finfo(w.dtype).eps
    lam = forward(w).detach().double()
    away = lam.abs() if time == "continuous" else 1.0 - lam.abs()
    least = rounding if time == "continuous" else max(rounding, apart)
    floor = min(least, float(away.amin()))
    ceiling = max(1.0 / rounding, float(away.amax()))

    def holds(raw: float) -> bool:
        at = torch.tensor([raw], dtype=w.dtype, device=w.device)
        told = [number for f in (forward, stored) if f is not None for number in _told(f, at)]
        size = -told[0] if time == "continuous" else 1.0 - abs(told[0])
        return all(map(math.isfinite, told)) and floor <= size <= ceiling

    return _farthest(holds, float(w.amin()), -1.0), _farthest(holds, float(w.amax()), 1.0)


def _told(forward: Forward, w: Tensor) -> tuple[float, float]:
    """The value and the slope in the precision of w, where one of them may overflow."""
    with torch.enable_grad():
        raw = w.detach().requires_grad_()
        value = forward(raw)
        (slope,) = torch.autograd.grad(value.sum(), raw)
    return float(value.detach()), float(slope)


def _farthest(holds: Callable[[float], bool], start: float, way: float) -> float:
    """The farthest weight up to which it holds, from a start at which it does."""
    low, step, high = 0.0, 1.0, None
    # Zero, where some forms turn round, is on no grid.
    across = abs(start) if start * way < 0.0 else math.inf
    while high is None:
        step = across if low < across < step else step
        if not holds(start + way * step):
            high = step
        elif step >= FARTHEST:
            return start + way * step
        else:
            low, step = step, 2.0 * step
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if holds(start + way * middle) else (low, middle)
    return start + way * low
