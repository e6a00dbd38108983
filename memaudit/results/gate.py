"""What a gate of the command line said about a report."""

from __future__ import annotations

from dataclasses import dataclass

from memaudit.records import Record


@dataclass(frozen=True, slots=True, eq=False)
class GateResult(Record):
    """One `--fail-on`: the word as it was given, whether it was hit, and by what.

    `told` is empty for a gate that simply passed. A gate that could not tell is hit, and says so.
    """

    word: str
    hit: bool
    told: str = ""
