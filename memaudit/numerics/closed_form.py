"""The memory function of a linear layer: from kernels and answers to curves and their verdict."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from memaudit.memory.curve import SIGNAL_OVER_FLOOR
from memaudit.memory.result import Decay, Status
from memaudit.memory.verdict import FEWEST_LAGS, classify, half_life_of, horizon_of, noise_floor
from memaudit.numerics.signals import lag_grid

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Numbers of the kernel up to which all lags are taken; in float64 they fill 64 MB.
MOST_NUMBERS = 2**23
#: Numbers that a layer is asked for at once: behind each of them may stand a hundred modes.
MOST_AT_ONCE = 2**18
#: Ever coarser grids of lags: the first ones that are all taken, then so many an octave.
GRIDS = ((256, 32), (64, 12), (20, 6))
#: The kernel at lag 0 is the present input, not memory.
FIRST_LAG = 1
#: Difference of answer and kernel, as a share of the largest memory, that rounding explains.
FINE, COARSE, FEW_ROUNDINGS = 1e-6, 1e-3, 16.0
#: Rounding of the loudest answer that may stand in every other one.
LOUD_ROUNDINGS = 100.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What follows from a curve: its floor with noise, its decay, horizon and half-life."""

    floor: float
    status: Status
    decay: Decay
    horizon: int | None = None
    half_life: float | None = None


#: Of a layer that was not run.
UNKNOWN = Verdict(0.0, Status.NOT_MEASURED, Decay("undetermined"))


def lags_for(steps: int, numbers: int) -> np.ndarray:
    """Lags 0 … steps-1, or a grid of them where `numbers` at every lag are too many."""
    if steps * numbers <= MOST_NUMBERS:
        return np.arange(steps)
    grids = [lag_grid(steps, dense=dense, per_octave=many) for dense, many in GRIDS]
    fitting = [grid for grid in grids if len(grid) * numbers <= MOST_NUMBERS]
    return (fitting or grids[-1:])[0].numpy()


def runs(lags: np.ndarray, most: int) -> Iterator[tuple[int, int]]:
    """Positions (first, last + 1) of consecutive lags, at most so many in a run."""
    breaks = np.flatnonzero(np.diff(lags) != 1) + 1
    for first, end in zip([0, *breaks], [*breaks, len(lags)], strict=True):
        for start in range(int(first), int(end), most):
            yield start, min(start + most, int(end))


def size_of(kernel: torch.Tensor, *, banked: bool) -> torch.Tensor:
    """M(t) = max_i sum_j |rho_ij(t)| of a kernel (L,M,D), max |rho_cd(t)| of a bank (L,C,D).

    It is the supremum of the largest output over impulses x with |x|_inf <= 1.
    """
    sizes = kernel.abs()
    return sizes.amax((1, 2)) if banked else sizes.sum(-1).amax(-1)


def answer_of(kernel: torch.Tensor, x: torch.Tensor, *, banked: bool) -> torch.Tensor:
    """What the kernel (L,M,D) answers to impulses x (K,D): (K,L,M), of a bank (K,L,C,D)."""
    if banked:
        return kernel * x[:, None, None]
    return torch.einsum("lmd,kd->klm", kernel, x)


def joined(answers: torch.Tensor, *, basis: bool) -> torch.Tensor:
    """The largest of answers (K,L,…) at every lag; over a basis the sum over its impulses."""
    sizes = answers.abs().flatten(2)
    return sizes.sum(0).amax(-1) if basis else sizes.amax((0, 2))


def signs_for(kernel: torch.Tensor) -> torch.Tensor:
    """The impulse (D,) that a kernel (M,D) answers loudest: the signs of its largest row."""
    row = kernel[kernel.abs().sum(-1).argmax()]
    return torch.where(row < 0, -1.0, 1.0).to(kernel.dtype)


def tolerance_of(dtype: torch.dtype, steps: int) -> float:
    """The deviation that rounding explains: a phase may lose a rounding in every step."""
    rounding = torch.finfo(dtype).eps
    nominal = FINE if dtype == torch.float64 else COARSE
    return max(nominal, FEW_ROUNDINGS * rounding, 2 * rounding * steps)


def deviation(
    difference: np.ndarray, exact: np.ndarray, lags: np.ndarray, *, rounding: float, limit: float
) -> float:
    """The largest difference as a share of the largest memory; infinite where it is not finite.

    Where memory is tiny beside the present answer, the rounding of the latter is allowed for.
    """
    if not np.isfinite(difference).all():
        return float("inf")
    past = lags >= FIRST_LAG
    loudest = float(exact.max(initial=0.0))
    scale = max(float(exact[past].max(initial=0.0)), LOUD_ROUNDINGS * rounding / limit * loudest)
    worst = float(difference[past].max(initial=0.0))
    present = float(difference[~past].max(initial=0.0))
    shares = [part / size for part, size in ((worst, scale), (present, loudest)) if size > 0]
    # A kernel of nothing but zeros has no size: any answer to it is as wrong as can be.
    return max(shares) if shares else float("inf") if max(worst, present) > 0 else 0.0


def verdict(
    lags: np.ndarray,
    values: np.ndarray,
    *,
    floor: float,
    rounding: float,
    epsilon: float,
    overflows: bool = False,
) -> Verdict:
    """The verdict on the finite part of a curve; what overflows behind it grows."""
    past = lags >= FIRST_LAG
    kind = "growing" if overflows and len(lags) else "undetermined"
    lags, values = lags[past], values[past]
    if not len(lags):
        return Verdict(floor, Status.DIVERGED if overflows else Status.TOO_FEW_LAGS, Decay(kind))
    floor = noise_floor(values, floor, rounding)
    decay = classify(lags, values, floor)
    if overflows:
        if decay.kind != "growing":
            decay = Decay("growing", window=(int(lags[0]), int(lags[-1])), confidence=1.0)
        return Verdict(floor, Status.DIVERGED, decay)
    found = Verdict(floor, Status.OK, decay)
    heard = values > SIGNAL_OVER_FLOOR * floor
    if decay.kind == "memoryless":
        return replace(found, status=Status.BELOW_FLOOR, horizon=0)
    if decay.kind in ("persistent", "growing"):
        return found
    if decay.kind == "undetermined" and heard.sum() < FEWEST_LAGS:
        found = replace(found, status=Status.TOO_FEW_LAGS)
    return replace(
        found,
        horizon=horizon_of(decay, lags, values, floor=floor, epsilon=epsilon),
        half_life=half_life_of(decay, lags, values, floor=floor),
    )
