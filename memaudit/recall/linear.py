"""What can be read back from the state of one linear layer, exactly, from its own matrices.

After k inputs from rest the state of x_t = A x_{t-1} + B u_t is x_k = V_k u_{1:k}, with
V_k = [A^{k-1} B, …, A B, B]. Under inputs that came for ever its covariance is the sum of
b_j b_jᵀ over all lags, b_j = A^j B.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from memaudit.interfaces import Status
from memaudit.numerics.linear import power, tolerance_of
from memaudit.numerics.signals import seeded
from memaudit.recall.result import (
    Decoding,
    LinearRecall,
    StateRecall,
    StationaryRecall,
    lags_above,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memaudit.interfaces import AbstractLinearPart, AbstractSubject, Setting

#: Numbers in all past inputs' rows, and channels of a bank that are looked at.
BUDGET, CHANNELS = 2**22, 16
#: Random inputs over which an error is averaged.
DRAWS = 16
#: Numbers in the rows of a layer that is followed until it has forgotten, for want of its matrix.
WALKED = 2**24
#: Steps of the trial in which a layer has to answer as the model does.
TRIAL_STEPS = 32
#: A conjugate is as near to its twin as single precision, in which weights are kept, puts it.
_TWINS = 1e-5
#: What is real is so but for the rounding of sines.
_REAL = 1e-13
#: States that are compared.
_LOOKED_AT = 64
#: Steps after which a state that still holds its first input never forgets: |lambda| is then
#: within 1e-13 of 1, where a power of it has no digits left.
FOREVER = 2**48


@dataclass(frozen=True, slots=True, eq=False)
class LinearTask:
    """How every linear layer is read: lags, sparse components, the dtype that rounds a state."""

    lags: int
    components: Sequence[int]
    dtype: torch.dtype
    seed: int

    def of(self, layer: str, part: AbstractLinearPart) -> LinearRecall:
        """The record of one layer."""
        trial = part.reach(0, 1)
        if trial is None:
            return self._unmeasured(layer, part, Status.NO_STATE)
        numbers, fed = numbers_of(trial), 1 if part.banked else part.width
        # A layer of many inputs needs few steps to fill its state.
        channels = min(part.width, CHANNELS) if part.banked else 1
        room = max(BUDGET // (numbers * fed * channels), -(-2 * numbers // fed))
        steps = max(1, min(self.lags, room))
        reach = part.reach(0, steps)
        if reach is None or not bool(torch.isfinite(reach).all()):
            return self._unmeasured(layer, part, Status.DIVERGED, numbers=numbers)
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
        count, fed = rows.shape[1], 1 if part.banked else part.width
        apart = Decomposition.even(torch.cat([rows, before], dim=1)[..., free].mT)
        exact, coarse = (
            apart.decodability(rounding=noise) for noise in (0.0, torch.finfo(self.dtype).eps)
        )
        values = [
            share[:, :count].unflatten(1, (-1, fed)).mean((0, 2)) for share in (exact, coarse)
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
        found = [self._read_back(k, rows[:, : k * fed].mT, free, fed) for k in counts]
        whole, eps = Decomposition.even(rows[..., free].mT), torch.finfo(self.dtype).eps
        shares = [
            whole.decodability(rounding=noise).view(len(rows), steps, fed).mean((0, 2))
            for noise in (0.0, eps)
        ]
        basis = [p for p in self.components if p <= steps]
        sparse = [self._read_back(p, _sparse(rows, p, fed), free, fed)[0] for p in basis]
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

    def _read_back(
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

    def _unmeasured(
        self, layer: str, part: AbstractLinearPart, status: Status, *, numbers: int = 0
    ) -> LinearRecall:
        none = np.zeros(0)
        dtype = str(self.dtype).removeprefix("torch.")
        empty = (layer, numbers, part.width, 0, 0, dtype, status, (), ())
        return LinearRecall(*empty, none, none, none, none, None, None)


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


def bare_layer(
    subject: AbstractSubject, linear: tuple[LinearRecall, ...], setting: Setting
) -> Decoding | None:
    """R² from the rounded state of the only layer, if the model answers as it does; else None.

    Of a stationary state; where there is none, of one that began at rest.
    """
    if len(linear) != 1 or linear[0].status is not Status.OK or not _alike(subject, setting):
        return None
    found, settled = linear[0], linear[0].stationary
    values = found.rounded_values if settled is None else settled.rounded_values
    # Of a bank every input has a state of its own.
    numbers = found.numbers * (found.inputs if found.channels else 1)
    return Decoding(
        state=found.layer,
        kind="state",
        numbers=numbers,
        used=numbers,
        inputs=found.inputs,
        values=values,
        floor=0.0,
        capacity=found.rounded_capacity if settled is None else settled.rounded_capacity,
        half=lags_above(values),
        samples=0,
        exact=True,
        status=Status.OK,
        stationary=settled is not None,
        whole=None if settled is None else settled.rounded_whole,
    )


def _alike(subject: AbstractSubject, setting: Setting) -> bool:
    """Whether the linear layer answers noise as the model does, within rounding."""
    (part,) = subject.linear_parts().values()
    if subject.pooled or part.width != subject.input_size:
        return False
    shape = (2, TRIAL_STEPS, part.width)
    u = torch.randn(shape, generator=seeded(setting.seed), dtype=torch.float64)
    u = u.to(subject.device, subject.dtype)
    own, other = subject.respond(u).double(), part.respond(u).flatten(2).double()
    if own.shape != other.shape:
        return False
    limit = tolerance_of(subject.dtype, TRIAL_STEPS) * float(own.abs().amax())
    return bool((own - other).abs().amax() <= limit)


# Matrices from past inputs to states


def past_rows(reach: Tensor) -> Tensor:
    """The rows (…,k·D,n) that past inputs have in the state, the newest first, in float64."""
    parts = torch.cat([reach.real, reach.imag], dim=-2) if reach.is_complex() else reach
    return parts.double().mT.flatten(-3, -2)


def numbers_of(reach: Tensor) -> int:
    """Real numbers n in the state."""
    return reach.shape[-2] * (2 if reach.is_complex() else 1)


@dataclass(frozen=True, slots=True, eq=False)
class Decomposition:
    """V = U diag(s) Wᵀ of real matrices (…,n,m): `left` U, `values` s, `right` Wᵀ.

    A singular value below rtol·s_max is taken for 0; rtol is at least max(n,m)·eps.
    """

    left: Tensor
    values: Tensor
    right: Tensor

    @classmethod
    def of(cls, matrix: Tensor) -> Decomposition:
        """Of matrices in float64, the real parts above the imaginary ones: inputs are real."""
        return cls(*torch.linalg.svd(real_rows(matrix), full_matrices=False))

    @classmethod
    def even(cls, matrix: Tensor) -> Decomposition:
        """Of matrices whose rows are scaled to norm 1: rounding is relative in every number."""
        return cls.of(unit_rows(matrix))

    def kept(self, rtol: float = 0.0) -> Tensor:
        """Which singular values are not taken for 0."""
        longest = max(self.left.shape[-2], self.right.shape[-1])
        least = max(rtol, longest * torch.finfo(self.values.dtype).eps)
        return (self.values > least * self.values[..., :1]) & (self.values > 0)

    def rank(self, rtol: float = 0.0) -> Tensor:
        """How many independent combinations of inputs are in the state."""
        return self.kept(rtol).sum(-1)

    def condition(self) -> Tensor:
        """s_max / s_min over the columns; infinite where they cannot be told apart."""
        full = self.rank() == self.right.shape[-1]
        least = torch.where(full, self.values[..., -1], 1.0)
        return torch.where(full, self.values[..., 0] / least, math.inf)

    def reconstruct(self, state: Tensor, rtol: float = 0.0) -> Tensor:
        """The least-squares inputs V^+ x (…,m,B) of real states x (…,n,B)."""
        kept = self.kept(rtol)
        inverse = torch.where(kept, 1.0 / torch.where(kept, self.values, 1.0), 0.0)
        return self.right.mT @ (inverse.unsqueeze(-1) * (self.left.mT @ state))

    def decodability(self, *, rounding: float = 0.0) -> Tensor:
        """R² (…,m) of each of the iid inputs, from a state that is rounded by eps = `rounding`.

            R²_j = v_jᵀ (V Vᵀ + sigma² I)^+ v_j,   sigma² = eps² trace(V Vᵀ) / (12 n)

        with v_j the columns of V: a number of mean size is off by up to eps/2 of it. Where rows
        differ in size take `even`, for every number is rounded by its own.
        """
        # Scaled before squaring, so that no size overflows.
        top = self.values[..., :1]
        squares = (self.values / torch.where(top > 0, top, 1.0)).square()
        # The numbers of the state, not the singular values, which may be fewer.
        mean = squares.sum(-1, keepdim=True) / self.left.shape[-2]
        noise = rounding**2 / 12 * mean
        kept = self.kept()
        share = torch.where(kept, squares / torch.where(kept, squares + noise, 1.0), 0.0)
        return (share.unsqueeze(-1) * self.right.square()).sum(-2)


def unit_rows(matrix: Tensor) -> Tensor:
    """The rows (…,n,m) of `real_rows`, each of norm 1; rows of zeros as they are."""
    rows = real_rows(matrix)
    # By the largest entry first: the squares of a norm must neither overflow nor vanish.
    for order in (math.inf, 2):
        size = torch.linalg.vector_norm(rows, order, dim=-1, keepdim=True)
        rows = rows / torch.where(size > 0, size, 1.0)
    return rows


def real_rows(values: Tensor) -> Tensor:
    """(…,n,m) in float64, the real parts above the imaginary ones."""
    parts = torch.cat([values.real, values.imag], dim=-2) if values.is_complex() else values
    return parts.double()


def rounded(state: Tensor, dtype: torch.dtype) -> Tensor:
    """A state as a dtype stores it, in float64 again, real parts above imaginary ones."""
    return real_rows(state).to(dtype).double()


def free_numbers(reach: Tensor) -> Tensor:
    """Indices among the real parts, then imaginary ones, of the states A^s B (H,k,N,D).

    Of two entries that are conjugates for every input only one is free, and of an entry that is
    always real only its real part. Real states are free in every entry.
    """
    size = reach.shape[2]
    if not reach.is_complex():
        return torch.arange(size)
    states = reach.transpose(2, 3).reshape(-1, size)
    at = torch.linspace(0, len(states) - 1, min(len(states), _LOOKED_AT)).round().long()
    seen = states[at]
    tall = seen.abs().amax(0)
    apart = torch.zeros(size, size, dtype=tall.dtype)
    for state in seen:
        apart = torch.maximum(apart, (state[:, None] - state.conj()).abs())
    twins = (apart <= _TWINS * tall[:, None]) & (tall > 0)[:, None]
    single = ~twins.triu(1).any(0)
    turning = states.imag.abs().amax(0) > _REAL * states.abs().amax(0)
    return torch.cat([single, single & turning]).nonzero().squeeze(1)


def haar_basis(length: int, count: int) -> Tensor:
    """The `count` coarsest Haar functions as orthonormal columns (length, count).

    The constant comes first, then the wavelets from coarse to fine. A wavelet on l + r steps is
    sqrt(r / (l (l + r))) on the first l of them and -sqrt(l / (r (l + r))) on the others; where a
    length is no power of two its halves differ by one step, and the basis stays orthonormal.
    """
    if not 0 < count <= length:
        raise ValueError(f"a basis of {length} steps has 1 to {length} functions, not {count}")
    basis = torch.zeros(length, count, dtype=torch.float64)
    basis[:, 0] = length**-0.5
    level, at = [(0, length)], 1
    while at < count:
        level = [part for ends in level for part in _halves(*ends)]
        pairs = [(a, b) for a, b in zip(level[::2], level[1::2], strict=True) if b[1] > b[0]]
        for (start, middle), (_, stop) in pairs[: count - at]:
            left, right = middle - start, stop - middle
            basis[start:middle, at] = (right / (left * (left + right))) ** 0.5
            basis[middle:stop, at] = -((left / (right * (left + right))) ** 0.5)
            at += 1
    return basis


def _halves(start: int, stop: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Both halves of a stretch; the second of a single step is empty."""
    middle = (start + stop + 1) // 2
    return (start, middle), (middle, stop)


# All of the past in a stationary state


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
    """The same where A is not known: the rows of `further(start, stop)` until they have decayed.

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
    """Whether nothing is left, not even in the faintest combination of numbers."""
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
