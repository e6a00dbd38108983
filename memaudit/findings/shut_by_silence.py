"""MA114: silence shuts the model, so queries that end in silence read nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from memaudit.contracts import AbstractRule
from memaudit.findings.evidence import groups, heard_by, one_sided
from memaudit.numerics.deaf import ENDING_IN_SILENCE, shut_by_silence

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from memaudit.report import Finding, Report


class ShutBySilence(AbstractRule):
    """Queries that end in silence find no memory, others do."""

    code: ClassVar[str] = "MA114"
    name: ClassVar[str] = "shut-by-silence"
    severity: ClassVar[str] = "warning"
    explanation: ClassVar[str] = (
        "The impulse and the reversed query feed zeros while they read. In a gated model such as "
        "Mamba a zero input shuts the gate through which the state is read, so the answer is "
        "silent whatever the state holds: these curves say nothing about the memory. Other "
        "queries of the same model, which read it under input, do find memory. Take a real input "
        "for silence (--set baseline=natural, or a number for models without embeddings), or "
        "read text (--query context)."
    )

    @classmethod
    def lacks(cls, queries: Collection[str], probes: Collection[str]) -> str:
        """One that ends in silence, or one that does not."""
        del probes
        return one_sided(queries, ENDING_IN_SILENCE)

    def check(self, report: Report) -> Iterable[Finding]:
        """One finding per place, with the queries on both sides."""
        baseline = report.settings.get("baseline", "zero")
        for where, curves in groups(report):
            deaf = shut_by_silence(curves, baseline=baseline)
            if deaf:
                heard = heard_by(curves, ENDING_IN_SILENCE)
                yield self.finding(
                    f"under zero input the answer is shut off ({', '.join(deaf)}: memoryless), "
                    f"under input it is not ({', '.join(heard)})",
                    "--set baseline=natural takes a real input for silence; --query context reads "
                    "a text",
                    where=where,
                )
