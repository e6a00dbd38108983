"""One diagonal state that all inputs feed and all outputs read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from memaudit.numerics.linear.convolution import accumulate
from memaudit.numerics.linear.light import convolved, modal_kernel
from memaudit.numerics.linear.numbers import as_complex, in_double, real_part
from memaudit.numerics.linear.powers import power, powers
from memaudit.numerics.linear.system import System

#: Steps in a chunk; numbers in one block of time, and in one block of a kernel.
_CHUNK, _NUMBERS, _BLOCK = 256, 2**17, 2**20
#: Pairs of an input and an output, a sequence, up to which kernels are less work than stepping.
_FEW = 16


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
        if self.direct is not None and start == 0 and len(kernel):
            kernel[0] += torch.diag(self.direct) if self.direct.ndim == 1 else self.direct
        return kernel

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

    def lightly(self, u: Tensor) -> Tensor:
        """(B,T,M) by FFT with the kernels where they are few, else step by step."""
        if len(self.readout) * self.width > _FEW * len(u):
            return self.step_through(u)
        kernels = modal_kernel(self.eigenvalues, self.inputs, self.readout, u.shape[1])
        return self._plus_direct(convolved(u, kernels), u)

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
        return self._plus_direct(real_part(states @ self.readout.to(states.dtype).mT), u)

    def _plus_direct(self, y: Tensor, u: Tensor) -> Tensor:
        if self.direct is None:
            return y
        return y + (u * self.direct if self.direct.ndim == 1 else u @ self.direct.mT)
