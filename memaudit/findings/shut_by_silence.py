"""MA114: silence shuts the model, so queries that end in silence read nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from memaudit.contracts import AbstractRule
from memaudit.findings.evidence import groups, one_sided, remembers

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from memaudit.results import Finding, Report

#: Queries that read the answer while the input is zero.
ENDING_IN_SILENCE = ("impulse", "reversed")


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
        if report.settings.get("baseline", "zero") != "zero":
            return
        for where, curves in groups(report):
            silent = {q: c for q, c in curves.items() if q in ENDING_IN_SILENCE}
            deaf = [q for q, c in silent.items() if c.decay.kind == "memoryless"]
            heard = [
                f"{q} {c.decay.kind}" for q, c in curves.items() if q not in silent and remembers(c)
            ]
            if deaf and len(deaf) == len(silent) and heard:
                yield self.finding(
                    f"under zero input the answer is shut off ({', '.join(deaf)}: memoryless), "
                    f"under input it is not ({', '.join(heard)})",
                    "--set baseline=natural takes a real input for silence; --query context reads "
                    "a text",
                    where=where,
                )
