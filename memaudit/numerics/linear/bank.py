"""Banks of single-input systems: every input has a state of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from memaudit.numerics.linear.chunks import Tables, chunk_size, run_in_chunks
from memaudit.numerics.linear.convolution import convolve
from memaudit.numerics.linear.light import bank_kernel, banked
from memaudit.numerics.linear.numbers import as_complex, in_double, real_part
from memaudit.numerics.linear.powers import giant_steps, krylov, power, powers
from memaudit.numerics.linear.system import System

#: Numbers in a state up to which stepping is less work than a kernel.
_FEW = 4
#: States that stepping keeps before it reads them out together.
_STATES = 2**20


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
        return _with_direct(torch.cat(found), self.direct, start)

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
        tables = Tables(
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
        return _plus_direct(torch.cat(found, dim=1), u, self.direct)

    def lightly(self, u: Tensor) -> Tensor:
        """(B,T,C,H) by FFT with the kernel, or step by step where a state is a few numbers."""
        if self.eigenvalues.shape[1] <= _FEW:
            return self.step_through(u)
        kernel = bank_kernel(self.eigenvalues, self.readout * self.inputs, u.shape[1])
        return _plus_direct(banked(u, kernel), u, self.direct)

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
        return _with_direct(torch.cat(found), self.direct, start)

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
        tables = Tables(
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
        return _plus_direct(torch.stack(found, dim=1), u, self.direct)


def _with_direct(kernel: Tensor, direct: Tensor | None, start: int) -> Tensor:
    if direct is None or start > 0 or not len(kernel):
        return kernel
    return torch.cat([kernel[:1] + direct, kernel[1:]])


def _plus_direct(y: Tensor, u: Tensor, direct: Tensor | None) -> Tensor:
    return y if direct is None else y + u.unsqueeze(2) * direct
