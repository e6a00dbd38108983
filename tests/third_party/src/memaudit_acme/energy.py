"""The energy probe: a measurement with its own result, numbers, table, picture and rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from memaudit.interfaces import NO_TOOLS, AbstractProbe, AbstractSubject, Setting, Tools
from memaudit.records import Floats
from memaudit.report import Finding, Metric, Result
from memaudit.rules import rule
from memaudit.sections import Axis, Column, Figure, Line, Section, Table

if TYPE_CHECKING:
    from memaudit.report import Report

LOUD = 10.0
ENERGY = Metric("energy", better="less", help="sum of the squared answers to one unit input")


@rule("AC001", "loud-answer", "warning", needs=("energy",))
def loud_answer(report: Report) -> Iterator[Finding]:
    """A unit input comes out with more than ten times its energy.

    Acme's amplifiers clip at that: scale the answers down.
    """
    result = report.results.get("energy")
    if isinstance(result, EnergyResult) and result.energy > LOUD:
        message = f"the energy of the answers is {result.energy:.4g}"
        yield loud_answer.finding(message, "scale the answers down")


@dataclass(frozen=True, slots=True, eq=False)
class EnergyResult(Result):
    """The energy of the answer by step."""

    steps: Floats

    declared: ClassVar[tuple[Metric, ...]] = (ENERGY,)
    rules: ClassVar[tuple[Any, ...]] = (loud_answer,)

    @property
    def energy(self) -> float:
        """All of it."""
        return float(np.sum(self.steps))

    @classmethod
    def joined(cls, parts: Mapping[str, EnergyResult]) -> EnergyResult:
        """That of all parts of a model that is audited layer by layer."""
        return cls(np.sum([part.steps for part in parts.values()], axis=0))

    def metrics(self) -> Iterator[Metric]:
        yield ENERGY.at(self.energy)

    def sections(self) -> Iterator[Section]:
        half = len(self.steps) // 2
        halves = (
            ("first", float(self.steps[:half].sum())),
            ("second", float(self.steps[half:].sum())),
        )
        at = np.arange(len(self.steps), dtype=float)
        yield Section(
            "Energy",
            line=f"{self.energy:.4g} of one unit input",
            tables=(Table((Column("half", key=True), Column("energy of the half")), halves),),
            figures=(
                Figure(
                    "Energy by step",
                    Axis("step"),
                    Axis("energy"),
                    (Line("answer", at, np.asarray(self.steps)),),
                ),
            ),
        )


@dataclass(frozen=True, slots=True)
class Energy(AbstractProbe):
    """How loud is the answer to one unit input?"""

    name: ClassVar[str] = "energy"
    summary: ClassVar[str] = "energy of the answer to one unit input"
    result: ClassVar[type[Result]] = EnergyResult
    options: ClassVar[Mapping[str, str]] = {"size": "size of the input"}

    size: float = 1.0

    def measure(
        self, subject: AbstractSubject, setting: Setting, tools: Tools = NO_TOOLS
    ) -> EnergyResult:
        import torch

        inputs = torch.zeros(1, 16, subject.input_size, dtype=torch.float64)
        inputs[:, 0] = self.size
        answers = subject.respond(inputs).double().cpu()
        return EnergyResult((answers[0] ** 2).sum(-1).numpy())
