"""MA003: the source leaves settings open."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from memaudit.contracts import AbstractRule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memaudit.results import Finding, Report


class AssumedSettings(AbstractRule):
    """Some settings are not in the source and were taken by default."""

    code: ClassVar[str] = "MA003"
    name: ClassVar[str] = "assumed-settings"
    severity: ClassVar[str] = "note"
    explanation: ClassVar[str] = (
        "A checkpoint holds weights, and rarely everything that is needed to run them: the "
        "nonlinearity of a plain RNN or the order of the gates cannot be read from tensors. What "
        "the source does not state was taken by default, and each value stands in the report "
        "with its reason. A wrong default gives the memory of another model. Compare the values "
        "with the code that trained the model, and set the wrong ones with --set KEY=VALUE."
    )

    def check(self, report: Report) -> Iterable[Finding]:
        """One finding that lists every assumed setting."""
        assumed = report.subject.assumed
        if not assumed:
            return
        listed = "; ".join(f"{key}: {reason.split(' (')[0]}" for key, reason in assumed.items())
        count = "1 setting was" if len(assumed) == 1 else f"{len(assumed)} settings were"
        advice = "look at the assumed settings, and set what is wrong with --set KEY=VALUE"
        yield self.finding(f"{count} assumed: {listed}", advice)
