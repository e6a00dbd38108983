"""The memory functions of a model by query, and the assumptions of the theory, as probes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memaudit import registry
from memaudit.errors import MemauditError
from memaudit.interfaces import NO_TOOLS, AbstractProbe, AbstractQuery, AbstractTrialQuery, Tools
from memaudit.memory.result import Assumption, AssumptionsResult, MemoryResult
from memaudit.registry import DEFAULT_QUERIES

if TYPE_CHECKING:
    from memaudit.interfaces import AbstractSubject, Setting

    AnyQuery = AbstractQuery | AbstractTrialQuery


@dataclass(frozen=True, slots=True)
class Assumptions(AbstractProbe):
    """Which assumptions of IATN Def. 2.1 does the model meet?

    Works on the adjusted functional A(u) = H(u) - H(0) with Gaussian inputs u, v of size one;
    residuals are relative to the largest |A(u)|.
    """

    name = "assumptions"
    summary = "linear, continuous, bounded, time-homogeneous, causal, regular; whether it repeats"
    result = AssumptionsResult
    cost = "cheap"

    def measure(
        self, subject: AbstractSubject, setting: Setting, tools: Tools = NO_TOOLS
    ) -> AssumptionsResult:
        from memaudit.memory.assumptions import Trial
        from memaudit.numerics.signals import seeded

        del tools
        found = tuple(Trial(subject, seeded(setting.seed)).run())
        if getattr(subject, "split", False):  # rows answered one by one say nothing of a batch
            found = tuple(map(_unknown_rows, found))
        return AssumptionsResult(found)


def _unknown_rows(assumption: Assumption) -> Assumption:
    if assumption.name != "rows-independent":
        return assumption
    note = "memory ran short: the rows could not be answered side by side"
    return replace(assumption, holds=None, residual=None, note=note)


@dataclass(frozen=True, slots=True)
class Memory(AbstractProbe):
    """How long does the model remember, and how does that memory decay?

    Queries on vectors share their passes; those about tokens have their own. The assumptions
    decide how the queries run, and are measured here where the scan does not ask for them.
    """

    name = "memory"
    summary = "memory functions by query: decay, horizon, half-life"
    result = MemoryResult
    cost = "cheap"

    queries: tuple[str | AnyQuery, ...] = DEFAULT_QUERIES

    def measure(
        self, subject: AbstractSubject, setting: Setting, tools: Tools = NO_TOOLS
    ) -> MemoryResult:
        from memaudit.memory.runner import facts_of, run_queries
        from memaudit.subjects.batches import batched

        subject = batched(subject)
        queries = [registry.build("queries", q) if isinstance(q, str) else q for q in self.queries]
        assumed = tools.results.get("assumptions") or Assumptions().measure(subject, setting)
        facts = facts_of(subject, assumed)
        names = tuple(query.name for query in queries)
        found = MemoryResult(
            curves={}, requested=names, baseline=str(setting.baseline), facts=facts
        )
        try:
            run_queries(subject, queries, setting, facts, found, tools)
        except (KeyboardInterrupt, MemauditError):
            if found.curves:
                tools.keep(found)
            raise
        order = {name: found.curves[name] for name in names if name in found.curves}
        return replace(found, curves=order)
