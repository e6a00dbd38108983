"""Plugins of other packages that fail in every way; the rows install them one by one."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from memaudit.interfaces import (
    NO_TOOLS,
    AbstractAdapter,
    AbstractProbe,
    AbstractQuery,
    AbstractReportFormat,
    AbstractSubject,
    Claim,
)
from memaudit.memory.result import Assumption, AssumptionsResult
from memaudit.report import Finding, Identity
from memaudit.rules import rule


def raising(error: BaseException) -> Any:
    """A method that raises."""

    def method(*_: Any, **__: Any) -> Any:
        raise error

    return method


def hanging(*_: Any, **__: Any) -> Any:
    """A method that never comes back, until somebody presses Ctrl-C or sends another signal."""
    number = int(os.environ.get("OUTSIDE_SIGNAL", signal.SIGINT))
    threading.Timer(0.2, os.kill, (os.getpid(), number)).start()
    time.sleep(3600)


class Halving(AbstractSubject):
    """A model of one input that forgets by half; `spoil` sees every answer of it."""

    def __init__(self, spoil: Callable[[Tensor, Tensor], Tensor] | None = None) -> None:
        self.identity = Identity("outside", "outside", "halving", 1, "float64", "cpu")
        self.input_size, self.pooled, self.spoil = 1, False, spoil
        self.device, self.dtype = torch.device("cpu"), torch.float64

    def respond(self, inputs: Tensor) -> Tensor:
        state, answers = torch.zeros_like(inputs[:, 0]), []
        for now in inputs.unbind(1):
            state = 0.5 * state + now
            answers.append(state)
        answer = torch.stack(answers, 1)
        return answer if self.spoil is None else self.spoil(inputs, answer)


class Adapter(AbstractAdapter):
    """An honest adapter that takes every source."""

    name, options, spoil = "outside", {}, None

    def claim(self, source: Any) -> Any:
        return Claim("halving", 99)

    def load(self, source: Any, request: Any) -> Any:
        return Halving(type(self).spoil)


class ClaimHangs(Adapter):
    claim = hanging


class LoadRaises(Adapter):
    load = raising(ZeroDivisionError("oops"))


class FromTheFuture(Adapter):
    contract = 99


class AnswerIsNan(Adapter):
    @staticmethod
    def spoil(inputs: Tensor, answer: Tensor) -> Tensor:
        return answer * torch.nan


class AnswerIsFlat(Adapter):
    @staticmethod
    def spoil(inputs: Tensor, answer: Tensor) -> Tensor:
        return answer[0, 0]


class LittleMemory(Adapter):
    """Room for three sequences, and the allocator of the CPU says so in its own words."""

    @staticmethod
    def spoil(inputs: Tensor, answer: Tensor) -> Tensor:
        if len(inputs) > 3:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return answer


class Query(AbstractQuery):
    name, summary = "outside", "an impulse"

    def inputs(self, x: Tensor, horizon: int) -> Tensor:
        sequences = x.new_zeros(len(x), horizon + 1, x.shape[1])
        sequences[:, 0] = x
        return sequences

    def moments(self, lags: Tensor, horizon: int) -> tuple[Tensor, Tensor | None]:
        return lags + 1, None


class QueryRaises(Query):
    inputs = raising(ValueError("no"))


class Probe(AbstractProbe):
    name, summary, result = "outside", "an assumption", AssumptionsResult

    def measure(self, subject: Any, setting: Any, tools: Any = NO_TOOLS) -> AssumptionsResult:
        return AssumptionsResult((Assumption("friendly", True, 0.0, 1.0),))


class ProbeRaises(Probe):
    measure = raising(LookupError("nothing found"))


class ProbeAnswersNonsense(Probe):
    def measure(self, subject: Any, setting: Any, tools: Any = NO_TOOLS) -> Any:
        return {"memory": float("nan")}


class ProbeHangs(Probe):
    measure = hanging


class ProbeMovesTheWeights(Probe):
    def measure(self, subject: Any, setting: Any, tools: Any = NO_TOOLS) -> AssumptionsResult:
        for tensor in subject.weights().values():
            tensor.mul_(2)
        return super().measure(subject, setting, tools)


class ProbeMovesTheWeightsAndRaises(Probe):
    def measure(self, subject: Any, setting: Any, tools: Any = NO_TOOLS) -> AssumptionsResult:
        for tensor in subject.weights().values():
            tensor.zero_()
        raise RuntimeError("and now this")


@rule("XX1", "outside", "note")
def rule_raises(report: Any) -> Iterable[Finding]:
    """A rule that fails after its first finding."""
    yield rule_raises.finding("all is well", "go on")
    raise AttributeError("no such field")


class Form(AbstractReportFormat):
    name, summary, suffix = "outside", "a page", ".txt"
    render = raising(TypeError("cannot render"))
