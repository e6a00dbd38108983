"""MA107: the queries see different memories."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from memaudit.catalog import DEFAULT_QUERIES
from memaudit.contracts import AbstractRule
from memaudit.findings.evidence import bracket, each, groups, span

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from memaudit.memory.result import Curve
    from memaudit.report import Finding, Report


#: Rates within this factor are one rate, measured through different nonlinear regimes.
FACTOR = 1.5
#: What tokens do is a question of its own.
IN_TOKENS = ("repeat", "context")


class QueriesDisagree(AbstractRule):
    """A step, an impulse and a switched-off input are forgotten differently."""

    code: ClassVar[str] = "MA107"
    name: ClassVar[str] = "queries-disagree"
    severity: ClassVar[str] = "note"
    explanation: ClassVar[str] = (
        "For a linear, time-homogeneous model every query reads the same memory function, so "
        "their verdicts agree. Here they differ in kind, or their exponential rates differ by "
        "more than a factor of 1.5 with intervals that do not overlap. The memory then depends on "
        "the state the model is in: gates that a large input holds open, or several equilibria. "
        "Gated models mostly do this at the largest amplitudes: --set amplitudes=[1.0] looks at "
        "inputs of one size. One "
        "number does not describe such a model. Read the curves side by side, and rely on the "
        "query that resembles your data."
    )

    @classmethod
    def lacks(cls, queries: Collection[str], probes: Collection[str]) -> str:
        """A second one that feeds vectors."""
        del probes
        vectors = [query for query in queries if query not in IN_TOKENS]
        others = [query for query in DEFAULT_QUERIES if query not in vectors]
        return others[0] if len(vectors) < 2 else ""

    def check(self, report: Report) -> Iterable[Finding]:
        """One finding per place whose determined curves contradict each other."""
        for where, curves in groups(report):
            sure = {q: c for q, c in curves.items() if _comparable(c)}
            kinds = {curve.decay.kind for curve in sure.values()}
            if len(kinds) > 1:
                fact = "the queries disagree about the kind of decay"
            elif _rates_differ(list(sure.values())):
                fact = f"the rates of the queries differ by more than a factor of {FACTOR}"
            else:
                continue
            yield self.finding(
                f"{fact} ({each(sure, _verdict)})",
                "compare the curves, and rely on the query that resembles your data",
                where=where,
            )


def _comparable(curve: Curve) -> bool:
    """Whether it has a verdict, on vectors: what tokens do is a question of its own."""
    return curve.decay.kind != "undetermined" and curve.normalization != "none"


def _rates_differ(curves: list[Curve]) -> bool:
    return any(_apart(a, b) for i, a in enumerate(curves) for b in curves[i + 1 :])


def _apart(one: Curve, other: Curve) -> bool:
    slow, fast = sorted((one.decay, other.decay), key=lambda decay: decay.rate or 0.0)
    if slow.kind != "exponential" or not slow.rate or not fast.rate or slow.rate <= 0:
        return False
    overlap = slow.interval and fast.interval and slow.interval[1] >= fast.interval[0]
    return fast.rate > FACTOR * slow.rate and not overlap


def _verdict(curve: Curve) -> str:
    decay = curve.decay
    if decay.rate is not None:
        return f"{decay.kind}, rate {decay.rate:.4g}{bracket(decay.interval)}"
    if decay.exponent is not None:
        return f"{decay.kind}, exponent {decay.exponent:.4g} over {span(curve)}"
    return decay.kind
