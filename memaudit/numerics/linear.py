"""Linear time-invariant state-space systems: kernels, convolution and stepping.

A system is x_t = A x_{t-1} + B u_t, y_t = Re(C x_t) + D u_t. Its kernel has a closed form,
rho(s) = Re(C A^s B), with D added at s = 0; running it is a convolution or a recurrence.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from memaudit.numerics.convolution import (
    ChunkTables,
    accumulate,
    banked,
    chunk_size,
    convolve,
    convolved,
    run_in_chunks,
)

#: Convolution is by FFT, stepping is the recurrence itself; chunks are steps in matrix products,
#: as fast as the one and as exact as the other, which is what auto takes; least-work is the way
#: with the least arithmetic, for many small systems in one batch.
EXECUTIONS = ("auto", "chunks", "convolution", "stepping", "least-work")
#: zoh holds the input over a step, bilinear is the trapezoidal rule, dirac hits it at once.
DISCRETIZATIONS = ("zoh", "bilinear", "dirac")
#: Steps in a chunk; numbers in one block of time, and in one block of a kernel.
_CHUNK, _NUMBERS, _BLOCK = 256, 2**17, 2**20
#: Pairs of an input and an output, a sequence, up to which kernels are less work than stepping.
_FEW_PAIRS = 16
#: Numbers in a state up to which stepping is less work than a kernel.
_FEW_STATES = 4
#: States that stepping keeps before it reads them out together.
_STATES = 2**20
#: The change into eigenvectors may cost three digits; beyond that stepping is the exact way.
_WORST_CONDITION = 1e3
#: Difference of an answer from that of the kernel, as a share of the largest, that rounding
#: explains: in float64, in coarser numbers, and at least so many roundings.
_FINE, _COARSE, _FEW_ROUNDINGS = 1e-6, 1e-3, 16.0


class System(ABC):
    """A causal linear time-invariant system in discrete time, real in and out.

    Laws: every execution of `run` gives the same within rounding, and its answer to a unit
    impulse is `kernel`.
    """

    #: True for a bank: input d reaches only its own C outputs.
    banked: ClassVar[bool]

    @property
    @abstractmethod
    def width(self) -> int:
        """Inputs D."""

    @abstractmethod
    def modes(self) -> Tensor:
        """The eigenvalues of one step, complex, in their natural shape."""

    @abstractmethod
    def kernel(self, start: int, stop: int) -> Tensor:
        """rho(start) … rho(stop-1) in closed form: (L,M,D), or (L,C,D) of a bank."""

    @abstractmethod
    def reach(self, start: int, stop: int) -> Tensor:
        """The states A^start B … A^(stop-1) B after a unit impulse: (L,N,D), in float64.

        Of a bank, N are the entries of the state that input d alone feeds.
        """

    @abstractmethod
    def transition(self) -> Tensor:
        """The A of these states, in float64: its diagonal (N,) or (N,N), of a bank after (D,…)."""

    @abstractmethod
    def convolve(self, u: Tensor) -> Tensor:
        """The answer to u (B,T,D) by FFT: (B,T,M), or (B,T,C,D) of a bank."""

    @abstractmethod
    def step_through(self, u: Tensor) -> Tensor:
        """The answer to u (B,T,D), one step after the other."""

    def in_chunks(self, u: Tensor) -> Tensor:
        """The answer to u (B,T,D), many steps at a time; each of them unless there is a way."""
        return self.step_through(u)

    def with_least_work(self, u: Tensor) -> Tensor:
        """The answer to u (B,T,D) with little arithmetic, nothing of it written in place."""
        return self.step_through(u)

    def run(self, u: Tensor, execution: str = "auto") -> Tensor:
        """The answer to u (B,T,D): (B,T,M), or (B,T,C,D) of a bank."""
        if execution not in EXECUTIONS:
            raise ValueError(f"{execution!r} is none of {', '.join(EXECUTIONS)}")
        if execution == "convolution":
            return self.convolve(u)
        if execution == "least-work":
            return self.with_least_work(u)
        return self.step_through(u) if execution == "stepping" else self.in_chunks(u)


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


# One state that all inputs feed and all outputs read


@dataclass(frozen=True, slots=True)
class Modal(System):
    """x_t = eigenvalues · x_{t-1} + inputs u_t, y_t = Re(readout x_t) + direct u_t.

    `eigenvalues` (P,), `inputs` (P,D), `readout` (M,P); `direct` is (D,) for a diagonal or (M,D).
    """

    eigenvalues: Tensor
    inputs: Tensor
    readout: Tensor
    direct: Tensor | None = None
    banked: ClassVar[bool] = False

    @property
    def width(self) -> int:
        """Inputs."""
        return self.inputs.shape[1]

    def modes(self) -> Tensor:
        """The eigenvalues (P,)."""
        return as_complex(self.eigenvalues)

    def kernel(self, start: int, stop: int) -> Tensor:
        """The kernel (L,M,D)."""
        outputs, states = self.readout.shape
        size = max(1, _BLOCK // (outputs * states))
        kernel = real_part(self.readout).new_empty(max(0, stop - start), outputs, self.width)
        moved = powers(self.eigenvalues, min(size, len(kernel))).mT  # (L,P)
        for at in range(start, stop, size):
            now = moved[: stop - at] * power(self.eigenvalues, at)
            block = (self.readout * now.unsqueeze(1)) @ self.inputs.to(now.dtype)
            kernel[at - start : at - start + size] = real_part(block)
        return _with_direct(kernel, self.direct, start)

    def reach(self, start: int, stop: int) -> Tensor:
        """The states (L,P,D) after an impulse in every input."""
        modes = in_double(self.eigenvalues)
        moved = powers(modes, max(0, stop - start)) * power(modes, start).unsqueeze(-1)
        return moved.mT.unsqueeze(-1) * in_double(self.inputs)

    def transition(self) -> Tensor:
        """The eigenvalues (P,)."""
        return in_double(self.eigenvalues)

    def convolve(self, u: Tensor) -> Tensor:
        """(B,T,M), every mode convolved with its powers."""
        fed = self._fed(u)
        wide = torch.promote_types(fed.dtype, torch.complex64)
        moved = powers(self.eigenvalues.to(wide), u.shape[1])
        return self._read(accumulate(fed.to(wide), self.eigenvalues, moved), u)

    def in_chunks(self, u: Tensor) -> Tensor:
        """(B,T,M), a chunk at a time."""
        steps = max(_CHUNK, _NUMBERS // (len(u) * len(self.eigenvalues)))
        before = self.inputs.new_zeros(len(u), len(self.eigenvalues))
        before = before.to(torch.promote_types(self.inputs.dtype, self.eigenvalues.dtype))
        found: list[Tensor] = []
        for part in u.split(steps, dim=1):
            states = self._states(self._fed(part).to(before.dtype), before)
            before = states[:, -1]
            found.append(self._read(states, part))
        return torch.cat(found, dim=1)

    def step_through(self, u: Tensor) -> Tensor:
        """(B,T,M), one step after the other."""
        fed = self._fed(u)
        state = torch.zeros_like(fed[:, 0])
        states: list[Tensor] = []
        for now in fed.unbind(1):
            state = self.eigenvalues * state + now
            states.append(state)
        return self._read(torch.stack(states, dim=1), u)

    def with_least_work(self, u: Tensor) -> Tensor:
        """(B,T,M) by FFT with the kernels where they are few, else step by step."""
        if len(self.readout) * self.width > _FEW_PAIRS * len(u):
            return self.step_through(u)
        kernels = modal_kernel(self.eigenvalues, self.inputs, self.readout, u.shape[1])
        return _plus_direct(convolved(u, kernels), u, self.direct)

    def _states(self, fed: Tensor, before: Tensor) -> Tensor:
        """The states (B,T,P) of what is fed: doubled inside chunks, carried between them."""
        length, size = fed.shape[1], min(_CHUNK, fed.shape[1])
        count = -(-length // size)
        states = functional.pad(fed, (0, 0, 0, count * size - length))
        states = states.unflatten(1, (count, size))
        # 1 / (1 - q) is the product of 1 + q, 1 + q², 1 + q⁴ …
        reach, factor = 1, self.eigenvalues
        while reach < size:
            late = states[:, :, reach:] + factor * states[:, :, : size - reach]
            states = torch.cat([states[:, :, :reach], late], dim=2)
            reach, factor = 2 * reach, factor * factor
        moved = powers(self.eigenvalues, size + 1)[:, 1:].mT  # (L,P)
        found: list[Tensor] = []
        for chunk in states.unbind(1):
            whole = chunk + moved * before.unsqueeze(1)
            before = whole[:, -1]
            found.append(whole)
        return torch.cat(found, dim=1)[:, :length]

    def _fed(self, u: Tensor) -> Tensor:
        return u.to(self.inputs.dtype) @ self.inputs.mT

    def _read(self, states: Tensor, u: Tensor) -> Tensor:
        y = real_part(states @ self.readout.to(states.dtype).mT)
        return _plus_direct(y, u, self.direct)


@dataclass(frozen=True, slots=True)
class Dense(System):
    """x_t = matrix x_{t-1} + inputs u_t, y_t = Re(readout x_t) + direct u_t.

    `matrix` (N,N), `inputs` (N,D), `readout` (M,N); `direct` is (D,) for a diagonal or (M,D).
    Convolution goes through the eigenvectors; where they are nearly dependent it steps instead.
    """

    matrix: Tensor
    inputs: Tensor
    readout: Tensor
    direct: Tensor | None = None
    banked: ClassVar[bool] = False

    @property
    def width(self) -> int:
        """Inputs."""
        return self.inputs.shape[1]

    def modes(self) -> Tensor:
        """The eigenvalues (N,)."""
        solve = torch.linalg.eigvalsh if self._is_hermitian() else torch.linalg.eigvals
        values = solve(self.matrix)
        return as_complex(values)

    def kernel(self, start: int, stop: int) -> Tensor:
        """The kernel (L,M,D), in steps of both sizes."""
        pieces = list(giant_steps(start, stop))
        outputs, (states, width) = len(self.readout), self.inputs.shape
        if not pieces:
            return real_part(self.readout.new_zeros(0, outputs, width))
        size = max(n for _, n in pieces)
        small = _reached(self.matrix, self.inputs, size)
        stride = torch.linalg.matrix_power(self.matrix, size)
        row = self.readout @ torch.linalg.matrix_power(self.matrix, start)
        found: list[Tensor] = []
        for _, n in pieces:
            block = row @ small[:n].permute(1, 0, 2).reshape(states, n * width)
            found.append(real_part(block).reshape(outputs, n, width).transpose(0, 1))
            row = row @ stride
        return _with_direct(torch.cat(found), self.direct, start)

    def reach(self, start: int, stop: int) -> Tensor:
        """The states (L,N,D) after an impulse in every input."""
        matrix = in_double(self.matrix)
        first = torch.linalg.matrix_power(matrix, start) @ in_double(self.inputs)
        return _reached(matrix, first, max(0, stop - start))

    def transition(self) -> Tensor:
        """The matrix (N,N)."""
        return in_double(self.matrix)

    def convolve(self, u: Tensor) -> Tensor:
        """(B,T,M) by FFT in the basis of the eigenvectors."""
        modal = self._modal()
        return self.step_through(u) if modal is None else modal.convolve(u)

    def step_through(self, u: Tensor) -> Tensor:
        """(B,T,M), one step after the other."""
        fed = u.to(self.inputs.dtype) @ self.inputs.mT
        matrix = self.matrix.mT
        state = torch.zeros_like(fed[:, 0])
        states: list[Tensor] = []
        for now in fed.unbind(1):
            state = torch.addmm(now, state, matrix)
            states.append(state)
        y = real_part(torch.stack(states, dim=1) @ self.readout.mT)
        return _plus_direct(y, u, self.direct)

    def _is_hermitian(self) -> bool:
        """Whether the matrix is Hermitian, whose eigenvectors are orthogonal."""
        return bool(torch.equal(self.matrix, self.matrix.mH))

    def _modal(self) -> Modal | None:
        """The same system in the basis of its eigenvectors, if that is a good one."""
        if self._is_hermitian():
            values, vectors = torch.linalg.eigh(self.matrix)
            values = values.to(vectors.dtype)
            back = vectors.mH
        else:
            values, vectors = torch.linalg.eig(self.matrix)
            if not bool(torch.linalg.cond(vectors) <= _WORST_CONDITION):
                return None
            back = torch.linalg.inv(vectors)
        inputs = back @ self.inputs.to(back.dtype)
        return Modal(values, inputs, self.readout.to(vectors.dtype) @ vectors, self.direct)


def _reached(matrix: Tensor, inputs: Tensor, count: int) -> Tensor:
    """(count,N,D): the states matrix^j·inputs after an impulse in each input."""
    found, factor = inputs.unsqueeze(0), matrix
    while len(found) < count:
        found = torch.cat([found, factor @ found])
        if len(found) < count:
            factor = factor @ factor
    return found[:count]


def _with_direct(kernel: Tensor, direct: Tensor | None, start: int) -> Tensor:
    """The kernel (L,M,D) with the direct path (D,) or (M,D) at lag 0."""
    if direct is None or start > 0 or not len(kernel):
        return kernel
    matrix = torch.diag(direct) if direct.ndim == 1 else direct
    return torch.cat([kernel[:1] + matrix, kernel[1:]])


def _plus_direct(y: Tensor, u: Tensor, direct: Tensor | None) -> Tensor:
    if direct is None:
        return y
    return y + (u * direct if direct.ndim == 1 else u @ direct.mT)


# Banks: every input has a state of its own


@dataclass(frozen=True, slots=True)
class Bank(System):
    """Diagonal systems: `eigenvalues` (H,N), `inputs` (H,N) and `readout` (C,H,N), complex or real.

    With one of each conjugate pair stored, the caller doubles the readout. `direct` is D (C,H).
    """

    eigenvalues: Tensor
    inputs: Tensor
    readout: Tensor
    direct: Tensor | None = None
    banked: ClassVar[bool] = True

    @property
    def width(self) -> int:
        """Inputs."""
        return self.eigenvalues.shape[0]

    def modes(self) -> Tensor:
        """The eigenvalues (H,N)."""
        return as_complex(self.eigenvalues)

    def kernel(self, start: int, stop: int) -> Tensor:
        """The kernel (L,C,H), in steps of both sizes."""
        weights = self.readout * self.inputs  # (C,H,N)
        pieces = list(giant_steps(start, stop))
        small = powers(self.eigenvalues, max((n for _, n in pieces), default=0))  # (H,N,m)
        # Put together, not written into place: a batch of copies can be run at once.
        found = [real_part(weights).new_empty(0, *weights.shape[:2])]
        for at, n in pieces:
            moved = weights * power(self.eigenvalues, at)
            found.append(real_part(torch.einsum("chn,hnl->lch", moved, small[..., :n])))
        return _with_bank_direct(torch.cat(found), self.direct, start)

    def reach(self, start: int, stop: int) -> Tensor:
        """The states (L,N,H) after an impulse in every input."""
        modes = in_double(self.eigenvalues)
        moved = powers(modes, max(0, stop - start)) * power(modes, start).unsqueeze(-1)
        return (moved * in_double(self.inputs).unsqueeze(-1)).permute(2, 1, 0)

    def transition(self) -> Tensor:
        """The eigenvalues (H,N)."""
        return in_double(self.eigenvalues)

    def convolve(self, u: Tensor) -> Tensor:
        """(B,T,C,H) by FFT."""
        return convolve(u, self.kernel(0, u.shape[1]).permute(1, 2, 0))

    def in_chunks(self, u: Tensor) -> Tensor:
        """(B,T,C,H), a chunk at a time."""
        size = chunk_size(u.shape[1], self.width)
        moved = powers(self.eigenvalues, size + 1)  # (H,N,L+1)
        rows = moved[..., 1:].transpose(1, 2)  # (H,L,N)
        stride = moved[..., -1:]
        tables = ChunkTables(
            kernel=self.kernel(0, size),
            observe=self.readout.unsqueeze(2) * rows,
            gather=self.inputs.unsqueeze(2) * moved[..., :-1].flip(2),
            move=lambda state: stride * state,
        )
        return run_in_chunks(u, tables)

    def step_through(self, u: Tensor) -> Tensor:
        """(B,T,C,H), one step after the other."""
        state = self.inputs.new_zeros(len(u), *self.inputs.shape)
        found: list[Tensor] = []
        kept: list[Tensor] = []
        for now in u.unbind(1):
            state = self.eigenvalues * state + self.inputs * now.unsqueeze(-1)
            kept.append(state)
            if len(kept) * state.numel() >= _STATES:
                found.append(self._read(kept))
        if kept:
            found.append(self._read(kept))
        return _plus_bank_direct(torch.cat(found, dim=1), u, self.direct)

    def with_least_work(self, u: Tensor) -> Tensor:
        """(B,T,C,H) by FFT with the kernel, or step by step where a state is a few numbers."""
        if self.eigenvalues.shape[1] <= _FEW_STATES:
            return self.step_through(u)
        kernel = bank_kernel(self.eigenvalues, self.readout * self.inputs, u.shape[1])
        return _plus_bank_direct(banked(u, kernel), u, self.direct)

    def _read(self, kept: list[Tensor]) -> Tensor:
        states = torch.stack(kept, dim=1)
        kept.clear()
        return real_part(torch.einsum("chn,bthn->btch", self.readout.to(states.dtype), states))


@dataclass(frozen=True, slots=True)
class DenseBank(System):
    """Full state matrices: `matrix` (H,N,N), `inputs` (H,N), `readout` (C,H,N); D is `direct`."""

    matrix: Tensor
    inputs: Tensor
    readout: Tensor
    direct: Tensor | None = None
    banked: ClassVar[bool] = True

    @property
    def width(self) -> int:
        """Inputs."""
        return self.matrix.shape[0]

    def modes(self) -> Tensor:
        """The eigenvalues (H,N)."""
        return as_complex(torch.linalg.eigvals(self.matrix))

    def kernel(self, start: int, stop: int) -> Tensor:
        """The kernel (L,C,H), in steps of both sizes."""
        pieces = list(giant_steps(start, stop))
        if not pieces:
            return real_part(self.readout).new_empty(0, *self.readout.shape[:2])
        size = max(n for _, n in pieces)
        small = krylov(self.matrix, self.inputs, size)  # (H,N,m)
        row = self.readout.transpose(0, 1)  # (H,C,N)
        row = row @ torch.linalg.matrix_power(self.matrix, start)
        stride = torch.linalg.matrix_power(self.matrix, size)
        found: list[Tensor] = []
        for _, n in pieces:
            found.append(real_part(torch.einsum("hcn,hnl->lch", row, small[..., :n])))
            row = row @ stride
        return _with_bank_direct(torch.cat(found), self.direct, start)

    def reach(self, start: int, stop: int) -> Tensor:
        """The states (L,N,H) after an impulse in every input."""
        matrix = in_double(self.matrix)
        first = torch.linalg.matrix_power(matrix, start) @ in_double(self.inputs).unsqueeze(-1)
        found = krylov(matrix, first.squeeze(-1), max(0, stop - start))
        return found.permute(2, 1, 0)

    def transition(self) -> Tensor:
        """The matrix (H,N,N)."""
        return in_double(self.matrix)

    def convolve(self, u: Tensor) -> Tensor:
        """(B,T,C,H) by FFT."""
        return convolve(u, self.kernel(0, u.shape[1]).permute(1, 2, 0))

    def in_chunks(self, u: Tensor) -> Tensor:
        """(B,T,C,H), a chunk at a time."""
        size = chunk_size(u.shape[1], self.width)
        over = self.matrix.mT.expand(len(self.readout), -1, -1, -1)
        observe = krylov(over, self.readout, size + 1)[..., 1:]  # (C,H,N,L)
        stride = torch.linalg.matrix_power(self.matrix, size)
        tables = ChunkTables(
            kernel=self.kernel(0, size),
            observe=observe.mT,
            gather=krylov(self.matrix, self.inputs, size).flip(2),
            move=lambda state: stride @ state,
        )
        return run_in_chunks(u, tables)

    def step_through(self, u: Tensor) -> Tensor:
        """(B,T,C,H), one step after the other."""
        state = self.inputs.new_zeros(len(u), *self.inputs.shape)
        found: list[Tensor] = []
        for now in u.unbind(1):
            moved = torch.einsum("hmn,bhn->bhm", self.matrix, state)
            state = moved + self.inputs * now.unsqueeze(-1)
            found.append(real_part(torch.einsum("chn,bhn->bch", self.readout, state)))
        return _plus_bank_direct(torch.stack(found, dim=1), u, self.direct)


def _with_bank_direct(kernel: Tensor, direct: Tensor | None, start: int) -> Tensor:
    """The kernel (L,C,H) with the direct path (C,H) at lag 0."""
    if direct is None or start > 0 or not len(kernel):
        return kernel
    return torch.cat([kernel[:1] + direct, kernel[1:]])


def _plus_bank_direct(y: Tensor, u: Tensor, direct: Tensor | None) -> Tensor:
    return y if direct is None else y + u.unsqueeze(2) * direct


# Numbers and powers


def tolerance_of(dtype: torch.dtype, steps: int) -> float:
    """The deviation from a kernel that rounding explains: a phase may lose one in every step."""
    rounding = torch.finfo(dtype).eps
    nominal = _FINE if dtype == torch.float64 else _COARSE
    return max(nominal, _FEW_ROUNDINGS * rounding, 2 * rounding * steps)


def real_part(values: Tensor) -> Tensor:
    """The real part of complex numbers; real ones as they are."""
    return values.real if values.is_complex() else values


def as_complex(values: Tensor) -> Tensor:
    """The same numbers, complex, in their precision."""
    return values.to(torch.promote_types(values.dtype, torch.complex64))


def in_double(values: Tensor) -> Tensor:
    """The same numbers, real or complex, in double precision."""
    return values.to(torch.promote_types(values.dtype, torch.float64))


def eigenvalues_of(
    matrix: Tensor, solve: Callable[[Tensor], Tensor] = torch.linalg.eigvals
) -> Tensor:
    """The eigenvalues (…,N) of matrices (…,N,N), NaN where one is not finite.

    The solvers for matrices do not return from what is not finite on every machine.
    """
    finite = matrix.isfinite().flatten(-2).all(-1, keepdim=True)
    return torch.where(finite, solve(torch.where(finite.unsqueeze(-1), matrix, 0.0)), torch.nan)


def powers(values: Tensor, count: int) -> Tensor:
    """values^0 … values^(count-1) on a new last axis; 0^0 is 1."""
    found = torch.ones_like(values).unsqueeze(-1)
    factor = values.unsqueeze(-1)  # values^(length of found)
    while found.shape[-1] < count:
        found = torch.cat([found, found * factor], dim=-1)
        factor = factor * factor
    return found[..., :count]


def power(values: Tensor, exponent: int) -> Tensor:
    """values^exponent by squaring."""
    found, factor = torch.ones_like(values), values
    while exponent:
        if exponent & 1:
            found = found * factor
        factor, exponent = factor * factor, exponent >> 1
    return found


def krylov(matrix: Tensor, vector: Tensor, count: int) -> Tensor:
    """(…,N,count): the columns matrix^0·vector … matrix^(count-1)·vector."""
    columns = vector.unsqueeze(-1)
    factor = matrix
    while columns.shape[-1] < count:
        columns = torch.cat([columns, factor @ columns], dim=-1)
        if columns.shape[-1] < count:
            factor = factor @ factor
    return columns[..., :count]


def giant_steps(start: int, stop: int) -> Iterator[tuple[int, int]]:
    """The range cut into about as many pieces as each is long: (first exponent, length)."""
    size = max(1, math.isqrt(stop - start))
    for at in range(start, stop, size):
        yield at, min(size, stop - at)


# Kernels with the least arithmetic, for many small systems at once. Nothing is written in place: a
# batch of copies can be run, and gradients flow.


def bank_kernel(eigenvalues: Tensor, weights: Tensor, length: int) -> Tensor:
    """Re Σ_n weights (C,H,N) · eigenvalues (H,N)^l for l < length: (C,H,length)."""
    small, large = _power_tables(eigenvalues, length)
    found = torch.einsum("gchn,shn->chgs", large.unsqueeze(1) * weights, small)
    return real_part(found.flatten(2)[..., :length])


def modal_kernel(eigenvalues: Tensor, inputs: Tensor, readout: Tensor, length: int) -> Tensor:
    """Re readout (M,P) · eigenvalues (P,)^l · inputs (P,D) for l < length: (M,D,length)."""
    small, large = _power_tables(eigenvalues, length)
    late = readout * large.unsqueeze(1)  # (G,M,P)
    early = small.unsqueeze(2) * inputs  # (S,P,D)
    found = torch.einsum("gmp,spd->mdgs", late, early)
    return real_part(found.flatten(2)[..., :length])


def _power_tables(values: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """The powers 0 … s-1, and those of s in steps of s, on a new first axis; s² >= length."""
    steps = max(1, math.isqrt(max(length, 1) - 1) + 1)
    small, stride = _successive_powers(values, steps)
    return small, _successive_powers(stride, -(-length // steps))[0]


def _successive_powers(factor: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """factor^0 … factor^(count-1), and factor^count, one product after the other."""
    now, found = torch.ones_like(factor), []
    for _ in range(count):
        found.append(now)
        now = now * factor
    return torch.stack(found), now
