"""MA115: a constant input shows nothing, other inputs do."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from memaudit.contracts import AbstractRule
from memaudit.findings.evidence import groups, heard_by, one_sided
from memaudit.numerics.deaf import CONSTANT, blind_to_constants

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from memaudit.report import Finding, Report


class BlindToConstants(AbstractRule):
    """Queries with a constant input find no memory, others do."""

    code: ClassVar[str] = "MA115"
    name: ClassVar[str] = "blind-to-constants"
    severity: ClassVar[str] = "note"
    explanation: ClassVar[str] = (
        "The heaviside query feeds one vector from the start on, and the answer does not change "
        "from step to step. Attention without absolute positions behaves like this: it averages "
        "values that are all equal, however far it looks back. Other queries of the same model "
        "do find memory, so this curve says nothing about it. Rely on the impulse, on the "
        "reversed query, or on text (--query context)."
    )

    @classmethod
    def lacks(cls, queries: Collection[str], probes: Collection[str]) -> str:
        """One that feeds a constant, or one that does not."""
        del probes
        return one_sided(queries, CONSTANT)

    def check(self, report: Report) -> Iterable[Finding]:
        """One finding per place, with the queries on both sides."""
        for where, curves in groups(report):
            deaf = blind_to_constants(curves)
            if deaf:
                heard = heard_by(curves, CONSTANT)
                yield self.finding(
                    f"a constant input leaves nothing to see ({', '.join(deaf)}: memoryless), "
                    f"others do ({', '.join(heard)})",
                    "rely on the impulse, on the reversed query, or on --query context",
                    where=where,
                )
