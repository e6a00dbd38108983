"""Linear layers whose kernel is known, run step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch

from memaudit.interfaces import AbstractLinearPart, AbstractSubject
from memaudit.report import Identity
from memaudit.testing.laws import convolved


class MatrixPart(AbstractLinearPart):
    """h_t = A h_{t-1} + B u_t, y_t = C h_t: the kernel is C A^s B. It counts what is asked."""

    banked = False

    def __init__(self, a, b, c, *, dtype: torch.dtype = torch.float64) -> None:
        self.a, self.b, self.c = (torch.as_tensor(m, dtype=dtype) for m in (a, b, c))
        self.width = self.b.shape[1]
        self.asked: list[int] = []
        self.rows: list[int] = []

    def kernel(self, start: int, stop: int) -> torch.Tensor:
        self.asked.append(stop - start)
        power, found = torch.linalg.matrix_power(self.a, start), []
        for _ in range(stop - start):
            found.append(self.c @ power @ self.b)
            power = self.a @ power
        return torch.stack(found)

    def respond(self, u: torch.Tensor) -> torch.Tensor:
        self.rows.append(len(u))
        state, answers = u.new_zeros(len(u), len(self.a)), []
        for step in u.unbind(1):
            state = state @ self.a.T + step @ self.b.T
            answers.append(state @ self.c.T)
        return torch.stack(answers, 1)


class BankPart(AbstractLinearPart):
    """Input d is answered by lam_d^s alone; the run convolves by FFT."""

    banked = True

    def __init__(self, lam, *, dtype: torch.dtype = torch.float64, mixed: float = 0.0) -> None:
        self.lam = torch.as_tensor(lam, dtype=dtype)
        self.width, self.mixed = len(self.lam), mixed
        self.asked: list[int] = []

    def kernel(self, start: int, stop: int) -> torch.Tensor:
        self.asked.append(stop - start)
        lags = torch.arange(start, stop, dtype=torch.float64)[:, None]
        return (self.lam.double() ** lags).to(self.lam.dtype)[:, None]

    def respond(self, u: torch.Tensor) -> torch.Tensor:
        steps = u.shape[1]
        kernel = self.kernel(0, steps)[:, 0]
        self.asked.pop()
        spectrum = torch.fft.rfft(u, 2 * steps, dim=1) * torch.fft.rfft(kernel, 2 * steps, dim=0)
        y = torch.fft.irfft(spectrum, 2 * steps, dim=1)[:, :steps]
        y = y + self.mixed * (y - y.roll(1, -1))  # nothing to be seen where all inputs are alike
        return y[:, :, None]


class GivenPart(AbstractLinearPart):
    """Any kernel (L,M,D), run by direct summation of another one where `run` gives it."""

    banked = False

    def __init__(self, kernel: torch.Tensor, *, run: torch.Tensor | None = None) -> None:
        self.given, self.run = kernel, kernel if run is None else run
        self.width = kernel.shape[2]

    def kernel(self, start: int, stop: int) -> torch.Tensor:
        return self.given[start:stop]

    def respond(self, u: torch.Tensor) -> torch.Tensor:
        return convolved(self.run.to(u.dtype), u, banked=False)


class Host(AbstractSubject):
    """A model that has such layers and answers by its input."""

    def __init__(
        self, parts: Mapping[str, AbstractLinearPart], *, dtype: torch.dtype = torch.float64
    ) -> None:
        self.identity = Identity("host", "wrap", "callable", 0, "float64", "cpu")
        self.input_size, self.pooled = 1, False
        self.device, self.dtype = torch.device("cpu"), dtype
        self.held = parts

    def respond(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs

    def linear_parts(self) -> Mapping[str, AbstractLinearPart]:
        return self.held


def scalar(lam: float, **options) -> MatrixPart:
    return MatrixPart([[lam]], [[1.0]], [[1.0]], **options)


def rotation(size: float, angle: float) -> MatrixPart:
    turn = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    return MatrixPart(size * np.array(turn), np.eye(2), np.eye(2))


def jordan(lam: float) -> MatrixPart:
    """The kernel is t·lam^(t-1)."""
    return MatrixPart([[lam, 1.0], [0.0, lam]], [[0.0], [1.0]], [[1.0, 0.0]])


def by_lag(rho: Callable[[np.ndarray], np.ndarray], steps: int) -> GivenPart:
    """One input, one output, rho(t)."""
    values = rho(np.arange(steps, dtype=np.float64))
    return GivenPart(torch.as_tensor(values, dtype=torch.float64)[:, None, None])
