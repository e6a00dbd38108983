"""What was found out about a model beside its curves: assumptions and findings."""

from __future__ import annotations

from dataclasses import dataclass

from memaudit.records import Record

SEVERITIES = ("note", "warning", "error")


@dataclass(frozen=True, slots=True, eq=False)
class Assumption(Record):
    """One property that the theory asks for, as measured: residual against tolerance.

    `holds` is None when it could not be measured; the note says why.
    """

    name: str
    holds: bool | None
    residual: float | None
    tolerance: float | None
    note: str = ""
    where: str = ""

    @property
    def verdict(self) -> str:
        """Whether it holds, in a word."""
        return {True: "holds", False: "fails", None: "not measured"}[self.holds]


@dataclass(frozen=True, slots=True, eq=False)
class Finding(Record):
    """Something that a person should know, with a permanent code and the advice."""

    code: str
    name: str
    severity: str
    message: str
    advice: str
    where: str = ""
