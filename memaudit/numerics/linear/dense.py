"""One state with a full matrix that all inputs feed and all outputs read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from memaudit.numerics.linear.modal import Modal
from memaudit.numerics.linear.numbers import as_complex, in_double, real_part
from memaudit.numerics.linear.powers import giant_steps
from memaudit.numerics.linear.system import System

#: The change into eigenvectors may cost three digits; beyond that stepping is the exact way.
_WORST_CONDITION = 1e3


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
        kernel = torch.cat(found)
        if self.direct is not None and start == 0:
            kernel[0] += torch.diag(self.direct) if self.direct.ndim == 1 else self.direct
        return kernel

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
        if self.direct is None:
            return y
        return y + (u * self.direct if self.direct.ndim == 1 else u @ self.direct.mT)

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
