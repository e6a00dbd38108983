"""Models of growing size against one target: their E_m(beta), and where these curves cross."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from memaudit.errors import SourceError, clean
from memaudit.records import Record, Unbounded, UnboundedFloats, decode
from memaudit.report import Finding, Identity

if TYPE_CHECKING:
    from pathlib import Path

#: Rises when a field of the JSON report of a family changes its meaning or goes away.
FAMILY_SCHEMA = 1
#: What a family can be: its crossings stay put, they shift left, or nobody can tell.
VERDICTS = ("stable", "unstable", "undetermined")


@dataclass(frozen=True, slots=True, eq=False)
class FamilyMember(Record):
    """One model of a family: `size` is its m, `start` its E(0), `errors` its E(beta).

    `errors` is the largest error that any draw found within beta, `seeds` the same for every seed
    by itself. `weight` is the largest size of a weight, `margin` the smallest 1 - |lambda|, and
    `radius` the smallest beta at which a draw put a mode on or beyond the boundary, infinite when
    none did; both are None where the weights alone do not decide the modes.
    """

    subject: Identity
    size: int
    start: Unbounded
    errors: UnboundedFloats
    seeds: tuple[UnboundedFloats, ...]
    weight: Unbounded
    margin: float | None = None
    radius: Unbounded | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Crossing(Record):
    """From which beta on the larger of two neighbours is the worse one.

    `beta` is infinite when their curves do not cross, and 0 when the larger one is no better even
    where no weight has moved. `interval` spans what the seeds say. `error` is E of the smaller one
    there, None without a crossing.
    """

    smaller: int
    larger: int
    beta: Unbounded
    interval: tuple[Unbounded, Unbounded]
    error: float | None = None

    @property
    def exists(self) -> bool:
        """Whether the curves cross, by the draws of all seeds together."""
        return 0 < self.beta < np.inf


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FamilyReport(Record):
    """The audit of a family, its members ordered by size.

    `reference` says what H is; `against` is the member that plays it and has no curve of its own,
    None when there is a target. `scale` is the norm of the reference, beyond which no error is
    compared. `counted` says what the sizes count. `verdict` is one of `VERDICTS`, `reason` the
    sentence behind it. `complete` is False when members are missing because it was cut short.
    """

    members: tuple[FamilyMember, ...]
    betas: UnboundedFloats
    reference: str
    scale: Unbounded
    counted: str
    crossings: tuple[Crossing, ...]
    verdict: str
    reason: str
    settings: dict[str, Any]
    against: Identity | None = None
    findings: tuple[Finding, ...] = ()
    complete: bool = True
    timing: dict[str, float] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        sizes = ", ".join(str(member.size) for member in self.members)
        return f"FamilyReport(m = {sizes}; {clean(self.verdict)}: {clean(self.reason)})"

    def to_dict(self) -> dict[str, Any]:
        """The JSON report: schema number and kind first, then the version, then the fields."""
        from memaudit import __version__

        head = {"schema": FAMILY_SCHEMA, "kind": "family", "memaudit": __version__}
        return {**head, **Record.to_dict(self)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The inverse of `to_dict`; refuses a schema that it does not know."""
        from memaudit.report_files import undamaged

        if (data.get("kind"), data.get("schema")) != ("family", FAMILY_SCHEMA):
            named = f"kind {clean(data.get('kind'))}, schema {clean(data.get('schema'))}"
            fact = f"this is no report of a family with schema {FAMILY_SCHEMA} ({named})"
            raise SourceError("E_UNSUPPORTED", fact, hint="write it again with this version")
        head = ("schema", "kind", "memaudit")
        with undamaged():
            return decode(cls, {k: v for k, v in data.items() if k not in head})

    def save(self, path: str | Path) -> Path:
        """Write the JSON report in one atomic step and give back its path."""
        from memaudit.report_files import write_json

        return write_json(self.to_dict(), path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a report that `save` wrote."""
        from memaudit.report_files import read_json

        return cls.from_dict(read_json(path))
