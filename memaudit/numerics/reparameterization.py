"""A reparameterization as a function f of raw weights: its slopes, its domain, its modulus.

f maps a raw weight w to a mode: a rate below zero in continuous time, an eigenvalue of modulus
below one in discrete time.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

Forward = Callable[[Tensor], Tensor]

#: Raw weights among which a stretch without a gradient shows, and none of which is zero.
_TRIED_WEIGHTS = (-4.05, 3.95, 81)
#: No raw weight is looked at beyond this.
FARTHEST = 1e18
_HALVINGS = 80
#: Raw weights reach from minus this to this: there 1 - tanh(w) has half of its digits left.
LARGEST_WEIGHT = 12.0
#: Raw weights at first and in every refinement, moves of each, refinements.
_FIRST, _CLOSER, _MOVES, _REFINEMENTS = 4801, 401, 33, 3
#: Sizes that are tried first, from 1e-12 to 1e12.
_SIZES = tuple(10.0 ** (k / 2) for k in range(-24, 25))
_TRIED_NUMBERS = (-math.inf, *(-s for s in reversed(_SIZES)), 0.0, *_SIZES, math.inf)


# Gradients


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
    w = torch.linspace(*_TRIED_WEIGHTS, dtype=torch.float64)
    return bool((derivative(forward, w) == 0.0).any())


# The raw weights at which a form is stable


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
        found = [number for f in (forward, stored) if f is not None for number in _jet(f, at)]
        size = -found[0] if time == "continuous" else 1.0 - abs(found[0])
        return all(map(math.isfinite, found)) and floor <= size <= ceiling

    return _farthest(holds, float(w.amin()), -1.0), _farthest(holds, float(w.amax()), 1.0)


def _jet(forward: Forward, w: Tensor) -> tuple[float, float]:
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


# How much a mode changes at most when its raw weight moves: StableSSM, Definition 3.2


def modulus(forward: Forward, beta: float, *, time: str) -> float:
    """The definition by brute force, sup over w and over v within beta of w, to about 1e-4.

    Infinite when a stable mode within reach becomes unstable. For beta up to 4: beyond that the
    slowest modes that matter cannot be told from the boundary.
    """
    low, high, largest = -LARGEST_WEIGHT, LARGEST_WEIGHT, 0.0
    for refined in range(_REFINEMENTS + 1):
        w = torch.linspace(low, high, _CLOSER if refined else _FIRST, dtype=torch.float64)
        changes = _changes(forward, w, beta, time)
        at = int(changes.argmax())
        largest = max(largest, float(changes[at]))
        step = (high - low) / (len(w) - 1)
        low, high = float(w[at]) - step, float(w[at]) + step
    return largest


def _changes(forward: Forward, w: Tensor, beta: float, time: str) -> Tensor:
    """The largest change of every mode; those that are not stable have none."""
    shares = torch.linspace(-1.0, 1.0, _MOVES, dtype=torch.float64)
    v = w[:, None] + beta * shares
    # Zero is where some turn round, and on no grid.
    nearest = torch.zeros_like(w).clamp(w - beta, w + beta)
    v = torch.cat([v, nearest[:, None]], dim=1)
    lam, moved = forward(w)[:, None], forward(v)
    change = kernel_change(lam, moved, time=time).amax(1)
    return torch.where(_decays(lam[:, 0], time), change, torch.zeros_like(change))


def kernel_change(lam: Tensor, moved: Tensor, *, time: str) -> Tensor:
    """|k' - k|_1 / |k|_1 of the kernels k = e^{lam t}, or lam^t in discrete time.

    In continuous time that is |lam| ∫ |e^{lam' t} - e^{lam t}| dt. Infinite when k' does not decay.
    """
    if time == "continuous":
        change = (lam / moved - 1.0).abs()
    else:
        change = (1.0 - lam.abs()) * _apart(lam, moved)
    return torch.where(_decays(moved, time), change, torch.inf)


def _decays(lam: Tensor, time: str) -> Tensor:
    return lam < 0.0 if time == "continuous" else lam.abs() < 1.0


def _apart(first: Tensor, second: Tensor) -> Tensor:
    """The sum over t of |first^t - second^t|: even and odd powers by themselves."""
    one, two = first.abs(), second.abs()
    even = (1.0 / (1.0 - one.square()) - 1.0 / (1.0 - two.square())).abs()
    odd_one, odd_two = one / (1.0 - one.square()), two / (1.0 - two.square())
    opposite = first * second < 0.0
    return even + torch.where(opposite, odd_one + odd_two, (odd_one - odd_two).abs())


# The set of numbers for which something holds


@dataclass(frozen=True, slots=True)
class Interval:
    """The smallest interval around a set of numbers; `closed` says which ends belong to it."""

    low: float
    high: float
    closed: tuple[bool, bool]

    def __str__(self) -> str:
        left, right = "[" if self.closed[0] else "(", "]" if self.closed[1] else ")"
        return f"{left}{self.low:.7g}, {self.high:.7g}{right}"


def interval_of(holds: Callable[[float], bool]) -> Interval | None:
    """The ends to the last bit, None when no number that was tried is inside.

    Between numbers of float64 an open end cannot be told from a closed one beside it: the one of
    fewer digits is taken for the end.
    """
    inside = [holds(value) for value in _TRIED_NUMBERS[1:-1]]
    if not any(inside):
        return None
    known = (False, *inside, False)
    neighbours = list(pairwise(zip(_TRIED_NUMBERS, known, strict=True)))
    outer, inner = next((a, b) for (a, out), (b, there) in neighbours if there and not out)
    low, low_closed = _end(holds, inner, outer)
    inner, outer = next(
        (a, b) for (a, there), (b, out) in reversed(neighbours) if there and not out
    )
    high, high_closed = _end(holds, inner, outer)
    return Interval(low, high, (low_closed, high_closed))


def _end(holds: Callable[[float], bool], inside: float, outside: float) -> tuple[float, bool]:
    """The end between a number inside and one outside, and whether it is inside."""
    near, far = _rank(inside), _rank(outside)
    while abs(far - near) > 1:
        middle = (near + far) // 2
        near, far = (middle, far) if holds(_number(middle)) else (near, middle)
    last, first = _number(near), _number(far)
    return (last, True) if len(repr(last)) <= len(repr(first)) else (first, False)


def _rank(value: float) -> int:
    """The place of a number among all of float64: bisection needs at most 64 steps."""
    (bits,) = struct.unpack("<q", struct.pack("<d", value))
    return bits if bits >= 0 else -(bits & 0x7FFF_FFFF_FFFF_FFFF)


def _number(rank: int) -> float:
    (size,) = struct.unpack("<d", struct.pack("<q", abs(rank)))
    return size if rank >= 0 else -size
