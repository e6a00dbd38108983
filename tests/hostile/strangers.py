"""Plugins as strangers write them on a bad day; the table registers them one by one."""

from __future__ import annotations

import time
from typing import Any

import torch

from memaudit.contracts import (
    AbstractAdapter,
    AbstractProbe,
    AbstractQuery,
    AbstractReportFormat,
    AbstractRule,
    AbstractSubject,
    Claim,
)
from memaudit.errors import ArgumentError
from memaudit.results import Assumption, Finding, Identity

FOREVER = 600


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


class ClaimExits(Adapter):
    def claim(self, source: Any) -> Any:
        raise SystemExit(0)


class ClaimHangs(Adapter):
    def claim(self, source: Any) -> Any:
        time.sleep(FOREVER)


class ClaimHangsAndSwallows(Adapter):
    def claim(self, source: Any) -> Any:
        while True:
            try:
                time.sleep(FOREVER)
            except Exception:
                continue


class ClaimIsNonsense(Adapter):
    def claim(self, source: Any) -> Any:
        return "certainly"


class ClaimMovesTheWeights(Adapter):
    def claim(self, source: Any) -> Any:
        if source.module is not None:
            for parameter in source.module.parameters():
                parameter.data.zero_()


class ClaimRunsOut(Adapter):
    def claim(self, source: Any) -> Any:
        raise MemoryError


class ClaimComplains(Adapter):
    def claim(self, source: Any) -> Any:
        raise ArgumentError("not mine")


class ClaimPrints(Adapter):
    def claim(self, source: Any) -> Any:
        print("a stranger speaks on stdout")


class BuildRaises(Adapter):
    def __init__(self) -> None:
        raise RuntimeError("no licence")


class LoadRaises(Adapter):
    def load(self, source: Any, request: Any) -> Any:
        raise ZeroDivisionError("oops")


class LoadHangs(Adapter):
    def load(self, source: Any, request: Any) -> Any:
        time.sleep(FOREVER)


class LoadIsNonsense(Adapter):
    def load(self, source: Any, request: Any) -> Any:
        return 42


class LoadHasNoWidth(Adapter):
    def load(self, source: Any, request: Any) -> Any:
        subject = Echo()
        subject.input_size = float("nan")  # type: ignore[assignment]
        return subject


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


class Query(AbstractQuery):
    name, summary = "stranger", "an impulse by a stranger"

    def inputs(self, x: torch.Tensor, horizon: int) -> torch.Tensor:
        sequences = x.new_zeros(len(x), horizon + 1, x.shape[1])
        sequences[:, 0] = x
        return sequences

    def moments(self, lags: torch.Tensor, horizon: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        return lags + 1, None


class QueryRaises(Query):
    def inputs(self, x: torch.Tensor, horizon: int) -> torch.Tensor:
        raise ValueError("no")


class QueryRaisesLate(Query):
    def inputs(self, x: torch.Tensor, horizon: int) -> torch.Tensor:
        if len(x) > 2:
            raise ValueError("too many for me")
        return super().inputs(x, horizon)


class QueryHangs(Query):
    def inputs(self, x: torch.Tensor, horizon: int) -> torch.Tensor:
        time.sleep(FOREVER)
        return x


class QueryRunsOut(Query):
    def inputs(self, x: torch.Tensor, horizon: int) -> torch.Tensor:
        raise MemoryError


class QueryIsNan(Query):
    def inputs(self, x: torch.Tensor, horizon: int) -> torch.Tensor:
        return super().inputs(x, horizon) * float("nan")


class QueryIsFlat(Query):
    def inputs(self, x: torch.Tensor, horizon: int) -> torch.Tensor:
        return x


class QueryReadsOutside(Query):
    def moments(self, lags: torch.Tensor, horizon: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        return lags + horizon, None


class Probe(AbstractProbe):
    name, summary, fills = "stranger", "an assumption of a stranger", "assumptions"

    def measure(self, subject: Any, setting: Any) -> Any:
        return (Assumption("friendly", True, 0.0, 1.0),)


class ProbeRaises(Probe):
    def measure(self, subject: Any, setting: Any) -> Any:
        raise LookupError("nothing found")


class ProbeExits(Probe):
    def measure(self, subject: Any, setting: Any) -> Any:
        raise SystemExit(3)


class ProbeHangs(Probe):
    def measure(self, subject: Any, setting: Any) -> Any:
        time.sleep(FOREVER)


class ProbeRunsOut(Probe):
    def measure(self, subject: Any, setting: Any) -> Any:
        raise MemoryError


class ProbeIsNan(Probe):
    def measure(self, subject: Any, setting: Any) -> Any:
        return (Assumption("friendly", True, float("nan"), 1.0),)


class ProbeIsNonsense(Probe):
    def measure(self, subject: Any, setting: Any) -> Any:
        return "friendly"


class ProbeFillsTheSubject(Probe):
    fills = "subject"


class ProbeMovesTheWeights(Probe):
    def measure(self, subject: Any, setting: Any) -> Any:
        for tensor in subject.weights().values():
            tensor.mul_(2)
        return super().measure(subject, setting)


class ProbeMovesTheWeightsAndRaises(Probe):
    def measure(self, subject: Any, setting: Any) -> Any:
        for tensor in subject.weights().values():
            tensor.zero_()
        raise RuntimeError("and now this")


class Rule(AbstractRule):
    code, name, severity, explanation = "XX1", "stranger", "note", "A rule of a stranger."

    def check(self, report: Any) -> Any:
        return [self.finding("all is well", "go on")]


class RuleRaises(Rule):
    def check(self, report: Any) -> Any:
        raise AttributeError("no such field")


class RuleRaisesLate(Rule):
    def check(self, report: Any) -> Any:
        yield self.finding("all is well", "go on")
        raise AttributeError("no such field")


class RuleScribbles(Rule):
    def check(self, report: Any) -> Any:
        for curve in report.memory.values():
            curve.values[:] = 7
        report.memory.clear()
        return []


class RuleSpeaksForOthers(Rule):
    def check(self, report: Any) -> Any:
        return [Finding("MA103", "persistent-memory", "error", "trust me", "panic")]


class RuleRunsOut(Rule):
    def check(self, report: Any) -> Any:
        raise MemoryError


class RuleIsNonsense(Rule):
    def check(self, report: Any) -> Any:
        return [None]


class Form(AbstractReportFormat):
    name, summary, suffix = "stranger", "a page of a stranger", ".txt"

    def render(self, report: Any) -> str:
        return "memory"


class FormScribbles(Form):
    def render(self, report: Any) -> str:
        report.memory.clear()
        return "memory"


class FormRaises(Form):
    def render(self, report: Any) -> str:
        raise TypeError("cannot render")


class FormIsNonsense(Form):
    def render(self, report: Any) -> Any:
        return None
