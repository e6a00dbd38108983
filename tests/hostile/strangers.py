"""Adapters as strangers write them on a bad day; the table registers them one by one."""

from __future__ import annotations

from typing import Any

import torch

from memaudit.errors import ArgumentError
from memaudit.interfaces import AbstractAdapter, AbstractSubject, Claim
from memaudit.report import Identity


class Echo(AbstractSubject):
    """A model of one input that forgets by half."""

    def __init__(self) -> None:
        self.identity = Identity("stranger", "stranger", "echo", 1, "float64", "cpu")
        self.input_size, self.pooled = 1, False
        self.device, self.dtype = torch.device("cpu"), torch.float64

    def respond(self, inputs: torch.Tensor) -> torch.Tensor:
        state, answers = torch.zeros_like(inputs[:, 0]), []
        for now in inputs.unbind(1):
            state = 0.5 * state + now
            answers.append(state)
        return torch.stack(answers, 1)


class Adapter(AbstractAdapter):
    name, options = "stranger", {}

    def claim(self, source: Any) -> Any:
        return Claim("echo", 99)

    def load(self, source: Any, request: Any) -> Any:
        return Echo()


class ClaimRaises(Adapter):
    def claim(self, source: Any) -> Any:
        raise KeyError("no such thing")


class ClaimComplains(Adapter):
    def claim(self, source: Any) -> Any:
        raise ArgumentError("not mine")


class BuildRaises(Adapter):
    def __init__(self) -> None:
        raise RuntimeError("no licence")


class LoadRaises(Adapter):
    def load(self, source: Any, request: Any) -> Any:
        raise ZeroDivisionError("oops")


class AnswerRaises(Adapter):
    def load(self, source: Any, request: Any) -> Any:
        class Broken(Echo):
            def respond(self, inputs: torch.Tensor) -> torch.Tensor:
                raise RuntimeError("the kernel is gone")

        return Broken()


class AnswerRaisesLate(Adapter):
    def load(self, source: Any, request: Any) -> Any:
        class Broken(Echo):
            def respond(self, inputs: torch.Tensor) -> torch.Tensor:
                if len(inputs) > 20:
                    raise RuntimeError("the kernel is gone")
                return super().respond(inputs)

        return Broken()


class AnswerIsNan(Adapter):
    def load(self, source: Any, request: Any) -> Any:
        class Broken(Echo):
            def respond(self, inputs: torch.Tensor) -> torch.Tensor:
                return inputs * float("nan")

        return Broken()


class AnswerIsFlat(Adapter):
    def load(self, source: Any, request: Any) -> Any:
        class Broken(Echo):
            def respond(self, inputs: torch.Tensor) -> torch.Tensor:
                return inputs[0, 0]

        return Broken()


class AnswerRunsOut(Adapter):
    """Room for a few sequences only, and the allocator of the CPU says so in its own words."""

    def load(self, source: Any, request: Any) -> Any:
        class Small(Echo):
            def respond(self, inputs: torch.Tensor) -> torch.Tensor:
                if len(inputs) > 3:
                    raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
                return super().respond(inputs)

        return Small()


class NoMemoryAtAll(Adapter):
    def load(self, source: Any, request: Any) -> Any:
        class Small(Echo):
            def respond(self, inputs: torch.Tensor) -> torch.Tensor:
                raise MemoryError

        return Small()


class FromTheFuture(Adapter):
    contract = 99


class NotAnAdapter:
    """Nothing that memaudit knows."""
