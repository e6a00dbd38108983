"""How much a mode changes at most when its raw weight moves: StableSSM, Definition 3.2."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Forward = Callable[[Tensor], Tensor]

#: Raw weights reach from minus this to this: there 1 - tanh(w) has half of its digits left.
REACH = 12.0
#: Raw weights at first and in every closer look, moves of each, closer looks.
_FIRST, _CLOSER, _MOVES, _LOOKS = 4801, 401, 33, 3


def modulus(forward: Forward, beta: float, *, time: str) -> float:
    """The definition by brute force, sup over w and over v within beta of w, to about 1e-4.

    Infinite when a stable mode within reach becomes unstable. For beta up to 4: beyond that the
    slowest modes that matter cannot be told from the boundary.
    """
    low, high, largest = -REACH, REACH, 0.0
    for look in range(_LOOKS + 1):
        w = torch.linspace(low, high, _CLOSER if look else _FIRST, dtype=torch.float64)
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
