"""A linear filter as a Subject."""

from __future__ import annotations

import torch

from memaudit.errors import ArgumentError
from memaudit.interfaces import AbstractSubject
from memaudit.report import Identity


class AcmeSubject(AbstractSubject):
    """y_t = sum_s taps[s]·u_{t-s}, or y_t = decay·y_{t-1} + u_t; one input, one output."""

    def __init__(
        self, kind: str, weights: torch.Tensor, *, gain: float, identity: Identity
    ) -> None:
        self.kind, self.numbers, self.gain, self.identity = kind, weights, gain, identity
        self.input_size = 1
        self.pooled = False
        self.device, self.dtype = weights.device, weights.dtype

    def respond(self, inputs: torch.Tensor) -> torch.Tensor:
        if inputs.ndim != 3 or inputs.shape[-1] != 1:
            raise ArgumentError(f"the filter takes (B, T, 1), not {tuple(inputs.shape)}")
        u = inputs.to(self.device, self.dtype)
        return self.gain * (self._filtered(u) if self.kind == "taps" else self._decayed(u))

    def _filtered(self, u: torch.Tensor) -> torch.Tensor:
        y = torch.zeros_like(u)
        for s, tap in enumerate(self.numbers[: u.shape[1]]):
            y[:, s:] += tap * u[:, : u.shape[1] - s]
        return y

    def _decayed(self, u: torch.Tensor) -> torch.Tensor:
        y, answers = torch.zeros_like(u[:, 0]), []
        for step in u.unbind(1):
            y = self.numbers * y + step
            answers.append(y)
        return torch.stack(answers, 1)
