"""The contract of a rule: one finding, and what must be measured before it can be told."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from memaudit.families.result import FamilyReport
    from memaudit.report import Finding, Report

#: What a rule needs that is told of several models together, never of one.
FAMILY = "family"


class AbstractRule(ABC):
    """One finding: a permanent code, the evidence it needs, the sentence and the advice.

    Law: without what it `needs` a rule says nothing, and a gate on it is refused.
    """

    code: ClassVar[str]
    name: ClassVar[str]
    severity: ClassVar[str]
    #: The severity of its milder cases; "" where there are none.
    milder: ClassVar[str] = ""
    #: What `memaudit explain` prints: why it matters and what to do, in a few sentences.
    explanation: ClassVar[str]
    #: The probes and queries without which it cannot tell; FAMILY for what one model never shows.
    needs: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def severities(cls) -> str:
        """How grave a finding may be, in words: "error or warning"."""
        return " or ".join(filter(None, (cls.severity, cls.milder)))

    @abstractmethod
    def check(self, report: Report) -> Iterable[Finding]:
        """The findings that the report gives rise to."""

    def check_family(self, family: FamilyReport) -> Iterable[Finding]:
        """The findings that a family of models gives rise to."""
        del family
        return ()

    @classmethod
    def lacks(cls, queries: Collection[str], probes: Collection[str]) -> str:
        """The probe or query that is missing among these, "" when the rule can tell."""
        return next((name for name in cls.needs if name not in {*queries, *probes}), "")

    def finding(self, message: str, advice: str, *, where: str = "") -> Finding:
        """A finding of this rule."""
        from memaudit.report import Finding

        return Finding(self.code, self.name, self.severity, message, advice, where)
