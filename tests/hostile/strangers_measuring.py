"""Queries, probes, rules and report formats as strangers write them on a bad day."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from memaudit.interfaces import NO_TOOLS, AbstractProbe, AbstractQuery, AbstractReportFormat
from memaudit.memory.result import Assumption, AssumptionsResult
from memaudit.report import Finding
from memaudit.rules import rule


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


class Probe(AbstractProbe):
    name, summary, result = "stranger", "an assumption of a stranger", AssumptionsResult

    def measure(self, subject: Any, setting: Any, tools: Any = NO_TOOLS) -> AssumptionsResult:
        return AssumptionsResult((Assumption("friendly", True, 0.0, 1.0),))


class ProbeRaises(Probe):
    def measure(self, subject: Any, setting: Any, tools: Any = NO_TOOLS) -> AssumptionsResult:
        raise LookupError("nothing found")


class ProbeRunsOut(Probe):
    def measure(self, subject: Any, setting: Any, tools: Any = NO_TOOLS) -> AssumptionsResult:
        raise MemoryError


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


@rule("XX1", "stranger", "note")
def rule_raises(report: Any) -> Iterable[Finding]:
    """A rule of a stranger."""
    raise AttributeError("no such field")


@rule("XX1", "stranger", "note")
def rule_raises_late(report: Any) -> Iterable[Finding]:
    """A rule of a stranger."""
    yield rule_raises_late.finding("all is well", "go on")
    raise AttributeError("no such field")


class Form(AbstractReportFormat):
    name, summary, suffix = "stranger", "a page of a stranger", ".txt"

    def render(self, report: Any) -> str:
        return "memory"


class FormRaises(Form):
    def render(self, report: Any) -> str:
        raise TypeError("cannot render")
