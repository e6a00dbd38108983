"""All of the past in a stationary state: what came before the inputs that are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from memaudit.numerics.linear.powers import power

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

#: Steps after which a state that still holds its first input never forgets: |lambda| is then
#: within 1e-13 of 1, where a power of it has no digits left.
FOREVER = 2**48


def earlier_rows(rows: Tensor, move: Tensor, steps: int) -> Tensor | None:
    """Rows T (H,m,n) for all inputs before the last `steps`, whose rows (H,steps·D,n) are given.

        P = sum_{j >= 0} b_j b_jᵀ = A P Aᵀ + B Bᵀ = rowsᵀ rows + Tᵀ T

    is the covariance of a stationary state under iid inputs, b_j = A^j B. `move` is A, diagonal
    (H,N) or full (H,N,N); of a complex state n = 2N, real parts first. The square root of P is
    doubled, F ← [F; F (A^m)ᵀ] made triangular, so that no digits are lost to squares. None where
    P does not exist: some |lambda| >= 1.
    """
    far = power(move, steps) if move.ndim == 2 else torch.linalg.matrix_power(move, steps)
    whole, factor, reach = _triangle(rows), far, steps
    while reach < FOREVER:
        moved = _moved(whole, factor)
        if not bool(moved.isfinite().all()):
            return None
        if _gone(moved, whole):
            return _moved(whole, far)
        whole = _triangle(torch.cat([whole, moved], dim=1))
        factor = factor * factor if factor.ndim == 2 else factor @ factor
        reach *= 2
    return None


def walked_rows(
    rows: Tensor, further: Callable[[int, int], Tensor], steps: int, *, most: int
) -> Tensor | None:
    """The same where A is not told: the rows of `further(start, stop)` until they have decayed.

    None where they have not after `most` steps.
    """
    found = rows[:, :0]
    at, size = steps, steps
    while at < most:
        stop = min(most, at + size)
        block = further(at, stop)
        if not bool(block.isfinite().all()):
            return None
        found = _triangle(torch.cat([found, block], dim=1))
        if _gone(block, rows):
            return found
        at, size = stop, 2 * size
    return None


def _gone(late: Tensor, early: Tensor) -> bool:
    """Whether nothing is left, not even in the faintest combination of numbers that is told."""
    least = torch.finfo(early.dtype).eps ** 2
    return bool((late.abs().amax(1) <= least * early.abs().amax(1)).all())


def _moved(rows: Tensor, move: Tensor) -> Tensor:
    size = move.shape[-1]
    state = rows
    if rows.shape[-1] == 2 * size:
        state = torch.complex(rows[..., :size], rows[..., size:])
    move = move.to(torch.promote_types(move.dtype, state.dtype))
    state = state * move.unsqueeze(1) if move.ndim == 2 else state.to(move.dtype) @ move.mT
    return torch.cat([state.real, state.imag], -1) if state.is_complex() else state


def _triangle(rows: Tensor) -> Tensor:
    """At most n rows with the same squares; columns are scaled before anything is squared."""
    scale = rows.abs().amax(1, keepdim=True)
    scale = torch.where(scale > 0, scale, 1.0)
    return torch.linalg.qr(rows / scale, mode="r").R * scale
