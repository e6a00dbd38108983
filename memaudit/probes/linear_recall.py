"""What can be read back from the state of one linear layer, from its own matrices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from memaudit.memory.result import Status
from memaudit.numerics.recall import (
    Decomposition,
    earlier_rows,
    free_numbers,
    haar_basis,
    numbers_of,
    past_rows,
    rounded,
    unit_rows,
    walked_rows,
)
from memaudit.numerics.signals import seeded
from memaudit.recall.result import LinearRecall, StateRecall, StationaryRecall

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from memaudit.contracts import AbstractLinearPart

#: Numbers in all past inputs' rows, and channels of a bank that are looked at.
BUDGET, CHANNELS = 2**22, 16
#: Random inputs over which an error is averaged.
DRAWS = 16
#: Numbers in the rows of a layer that is followed until it has forgotten, for want of its matrix.
WALKED = 2**24


@dataclass(frozen=True, slots=True, eq=False)
class LinearTask:
    """What is asked of every linear layer: steps, sparse components, and how a state is stored."""

    lags: int
    components: Sequence[int]
    dtype: torch.dtype
    seed: int

    def of(self, layer: str, part: AbstractLinearPart) -> LinearRecall:
        """The record of one layer."""
        trial = part.reach(0, 1)
        if trial is None:
            return self._nothing(layer, part, Status.NO_STATE)
        numbers, fed = numbers_of(trial), 1 if part.banked else part.width
        # A layer of many inputs needs few steps to fill its state.
        channels = min(part.width, CHANNELS) if part.banked else 1
        room = max(BUDGET // (numbers * fed * channels), -(-2 * numbers // fed))
        steps = max(1, min(self.lags, room))
        reach = part.reach(0, steps)
        if reach is None or not bool(torch.isfinite(reach).all()):
            return self._nothing(layer, part, Status.DIVERGED, numbers=numbers)
        systems = _systems(reach.detach().cpu(), banked=part.banked)
        free, rows = free_numbers(systems), past_rows(systems)  # (H,steps·D,2N)
        # A state that grows is as good as one that does not, but its squares may overflow.
        size = rows.abs().amax().clamp(min=torch.finfo(rows.dtype).tiny)
        rows, before = rows / size, _before(part, rows / size, size, steps)
        stationary = None if before is None else self._stationary(part, rows, before, free)
        return replace(self._measured(layer, part, rows, free), stationary=stationary)

    def _stationary(
        self, part: AbstractLinearPart, rows: Tensor, before: Tensor, free: Tensor
    ) -> StationaryRecall:
        """R² from a state that holds rows (H,steps·D,n) and what came before them."""
        asked, fed = rows.shape[1], 1 if part.banked else part.width
        apart = Decomposition.even(torch.cat([rows, before], dim=1)[..., free].mT)
        exact, coarse = (
            apart.decodability(rounding=noise) for noise in (0.0, torch.finfo(self.dtype).eps)
        )
        values = [
            share[:, :asked].unflatten(1, (-1, fed)).mean((0, 2)) for share in (exact, coarse)
        ]
        # The mean over the inputs that were looked at, times all of them.
        every = part.width / (len(rows) * fed)
        return StationaryRecall(
            values=values[0].clamp(0, 1).numpy(),
            rounded_values=values[1].clamp(0, 1).numpy(),
            capacity=float(values[0].sum()) * part.width,
            rounded_capacity=float(values[1].sum()) * part.width,
            whole=float(exact.sum()) * every,
            rounded_whole=float(coarse.sum()) * every,
        )

    def _measured(
        self, layer: str, part: AbstractLinearPart, rows: Tensor, free: Tensor
    ) -> LinearRecall:
        fed = 1 if part.banked else part.width
        steps, numbers = rows.shape[1] // fed, len(free)
        counts = sorted({*_doubling(steps), min(steps, max(1, numbers // fed)), steps})
        found = [self._asked(k, rows[:, : k * fed].mT, free, fed) for k in counts]
        whole, eps = Decomposition.even(rows[..., free].mT), torch.finfo(self.dtype).eps
        shares = [
            whole.decodability(rounding=noise).view(len(rows), steps, fed).mean((0, 2))
            for noise in (0.0, eps)
        ]
        basis = [p for p in self.components if p <= steps]
        sparse = [self._asked(p, _sparse(rows, p, fed), free, fed)[0] for p in basis]
        return LinearRecall(
            layer=layer,
            numbers=numbers,
            inputs=part.width,
            channels=len(rows) if part.banked else 0,
            steps=steps,
            dtype=str(self.dtype).removeprefix("torch."),
            status=Status.OK,
            lengths=tuple(record for record, _, _ in found),
            sparse=tuple(sparse),
            values=shares[0].clamp(0, 1).numpy(),
            rounded_values=shares[1].clamp(0, 1).numpy(),
            errors=found[-1][1],
            rounded_errors=found[-1][2],
            capacity=float(shares[0].sum()) * part.width,
            rounded_capacity=float(shares[1].sum()) * part.width,
        )

    def _asked(
        self, count: int, matrix: Tensor, free: Tensor, fed: int
    ) -> tuple[StateRecall, np.ndarray, np.ndarray]:
        """The record, and both errors of every step, for matrices (H,2N,count·fed)."""
        eps, even = torch.finfo(self.dtype).eps, unit_rows(matrix[:, free])
        apart = Decomposition.of(even)
        shape = (len(matrix), matrix.shape[2], DRAWS)
        u = torch.randn(shape, generator=seeded(self.seed), dtype=torch.float64)
        state = even @ u
        errors = [
            _shares(apart.reconstruct(x, rtol) - u, u, fed)
            for x, rtol in ((state, 0.0), (rounded(state, self.dtype), eps))
        ]
        record = StateRecall(
            count=count,
            rank=int(apart.rank().min()),
            rounded_rank=int(apart.rank(eps).min()),
            condition=float(Decomposition.of(matrix).condition().max()),
            error=_whole(errors[0]),
            rounded_error=_whole(errors[1]),
        )
        return record, errors[0], errors[1]

    def _nothing(
        self, layer: str, part: AbstractLinearPart, status: Status, *, numbers: int = 0
    ) -> LinearRecall:
        none = np.zeros(0)
        dtype = str(self.dtype).removeprefix("torch.")
        told = (layer, numbers, part.width, 0, 0, dtype, status, (), ())
        return LinearRecall(*told, none, none, none, none, None, None)


def _systems(reach: Tensor, *, banked: bool) -> Tensor:
    """(H,L,N,D): the layer as one system, or single inputs of a bank, evenly chosen."""
    if not banked:
        return reach.unsqueeze(0)
    return reach[..., _chosen(reach.shape[2])].permute(2, 0, 1).unsqueeze(-1)


def _chosen(width: int) -> Tensor:
    return torch.linspace(0, width - 1, min(width, CHANNELS)).round().long()


def _before(part: AbstractLinearPart, rows: Tensor, size: Tensor, steps: int) -> Tensor | None:
    """Rows for all that came before the last steps, in the unit `size`; None if it never ends."""
    move = part.transition()
    if move is not None:
        move = move.detach().cpu()
        return earlier_rows(rows, move[_chosen(len(move))] if part.banked else move[None], steps)

    def further(start: int, stop: int) -> Tensor:
        reach = part.reach(start, stop)
        assert reach is not None
        return past_rows(_systems(reach.detach().cpu(), banked=part.banked)) / size

    wide = rows.shape[2] * part.width  # numbers of one step
    return walked_rows(rows, further, steps, most=max(2 * steps, WALKED // wide))


def _sparse(rows: Tensor, count: int, fed: int) -> Tensor:
    """V Psi (H,n,count·fed) for inputs of `count` Haar functions each, of which time runs on."""
    by_lag = rows.unflatten(1, (-1, fed))  # (H,steps,D,n), the newest first
    basis = haar_basis(by_lag.shape[1], count).flip(0)
    return torch.einsum("lp,hldn->hnpd", basis, by_lag).flatten(2)


def _doubling(steps: int) -> list[int]:
    return [2**power for power in range(steps.bit_length()) if 2**power <= steps]


def _shares(off: Tensor, u: Tensor, fed: int) -> np.ndarray:
    """The root mean square of what is off at every step, as a share of that of the inputs."""
    size = u.square().mean().sqrt()
    return (off.square().unflatten(1, (-1, fed)).mean((0, 2, 3)).sqrt() / size).numpy()


def _whole(shares: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(shares))))
