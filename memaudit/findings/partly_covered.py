"""MA002: a part of the parameters was never run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from memaudit.contracts import AbstractRule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memaudit.results import Finding, Report


#: Parameters that a forward pass skips by design (a spare embedding row) stay below this share.
COVERED = 0.999
#: Beyond this share the rest is a head or the like.
NEARLY = 0.9


class PartlyCovered(AbstractRule):
    """The audited computation uses only a share of the parameters."""

    code: ClassVar[str] = "MA002"
    name: ClassVar[str] = "partly-covered"
    severity: ClassVar[str] = "warning"
    milder: ClassVar[str] = "note"
    explanation: ClassVar[str] = (
        "The audited computation uses only a share of the parameters in the source; the rest was "
        "not run. That happens when a checkpoint holds layers whose wiring it does not state "
        "(embeddings, heads, attention between recurrent layers). The verdict is about the part "
        "that was run, and the whole model may remember for longer or for shorter. To audit all "
        "of it, use the options of the adapter (encoder=NAME, head=NAME, output=logits, "
        "layers=all), or build the model in Python and wrap it: "
        "memaudit.wrap(model, input_size=...)."
    )

    def check(self, report: Report) -> Iterable[Finding]:
        """One finding with the share in percent."""
        share = report.subject.coverage
        if share >= COVERED:
            return
        found = self.finding(
            f"the audit ran {100 * share:.1f} % of the {report.subject.parameters:,} parameters; "
            "the rest was not run",
            "read the verdict as one about that part; the options of the adapter (memaudit list "
            "adapters) may run more of it, memaudit.wrap in Python runs all of it",
        )
        # A head that reads the states is no memory: a small share is worth a note only.
        yield replace(found, severity="note") if share >= NEARLY else found
