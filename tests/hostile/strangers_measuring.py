"""Queries, probes, rules and report formats as strangers write them on a bad day."""

from __future__ import annotations

import time
from typing import Any

import torch

from memaudit.contracts import AbstractProbe, AbstractQuery, AbstractReportFormat, AbstractRule
from memaudit.memory.result import Assumption
from memaudit.report import Finding
from tests.hostile.strangers import FOREVER


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
