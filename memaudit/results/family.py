"""Models of growing size against one target: their E_m(beta), and where these curves cross."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from memaudit.errors import SourceError, clean
from memaudit.records import Record
from memaudit.results.checking import check_types
from memaudit.results.endless import bounded, unbounded
from memaudit.results.identity import Identity
from memaudit.results.judgement import Finding
from memaudit.results.reading import endless_floats, listed

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
    start: float
    errors: np.ndarray
    seeds: tuple[np.ndarray, ...]
    weight: float
    margin: float | None = None
    radius: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values; infinity is a word."""
        return {
            "subject": self.subject.to_dict(),
            "size": self.size,
            "start": bounded(self.start),
            "errors": [bounded(value) for value in self.errors],
            "seeds": [[bounded(value) for value in curve] for curve in self.seeds],
            "weight": bounded(self.weight),
            "margin": self.margin,
            "radius": None if self.radius is None else bounded(self.radius),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        radius = data["radius"]
        read = {
            "subject": Identity.from_dict(data["subject"]),
            "start": unbounded(data["start"]),
            "errors": endless_floats(data["errors"]),
            "seeds": tuple(map(endless_floats, listed(data["seeds"]))),
            "weight": unbounded(data["weight"]),
            "radius": None if radius is None else unbounded(radius),
        }
        return cls(**{**data, **read})


@dataclass(frozen=True, slots=True, eq=False)
class Crossing(Record):
    """From which beta on the larger of two neighbours is the worse one.

    `beta` is infinite when their curves do not cross, and 0 when the larger one is no better even
    where no weight has moved. `interval` spans what the seeds say. `error` is E of the smaller one
    there, None without a crossing.
    """

    smaller: int
    larger: int
    beta: float
    interval: tuple[float, float]
    error: float | None = None

    @property
    def exists(self) -> bool:
        """Whether the curves cross, by the draws of all seeds together."""
        return 0 < self.beta < np.inf

    def to_dict(self) -> dict[str, Any]:
        """Plain values; infinity is a word."""
        ends = [bounded(end) for end in self.interval]
        return {**Record.to_dict(self), "beta": bounded(self.beta), "interval": ends}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        low, high = (unbounded(end) for end in listed(data["interval"]))
        return cls(**{**data, "beta": unbounded(data["beta"]), "interval": (low, high)})


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FamilyReport(Record):
    """The audit of a family, its members ordered by size.

    `reference` says what H is; `against` is the member that plays it and has no curve of its own,
    None when there is a target. `scale` is the norm of the reference, beyond which no error is
    compared. `counted` says what the sizes count. `verdict` is one of `VERDICTS`, `reason` the
    sentence behind it. `complete` is False when members are missing because it was cut short.
    """

    members: tuple[FamilyMember, ...]
    betas: np.ndarray
    reference: str
    scale: float
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
        return {**head, **Record.to_dict(self), "scale": bounded(self.scale)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The inverse of `to_dict`; refuses a schema that it does not know."""
        from memaudit.report_files import dumps, undamaged

        if (data.get("kind"), data.get("schema")) != ("family", FAMILY_SCHEMA):
            told = f"kind {clean(data.get('kind'))}, schema {clean(data.get('schema'))}"
            fact = f"this is no report of a family with schema {FAMILY_SCHEMA} ({told})"
            raise SourceError("E_UNSUPPORTED", fact, hint="write it again with this version")
        with undamaged():
            report = cls._from_known(data)
            check_types(report)
            dumps(report.to_dict())
        return report

    @classmethod
    def _from_known(cls, data: dict[str, Any]) -> Self:
        known = {f.name: data[f.name] for f in fields(cls)}
        extra = set(data) - set(known) - {"schema", "kind", "memaudit"}
        if extra:
            raise ValueError(f"unknown fields {', '.join(sorted(extra))}")
        against = data["against"]
        read = {
            "members": tuple(FamilyMember.from_dict(item) for item in listed(data["members"])),
            "betas": endless_floats(data["betas"]),
            "scale": unbounded(data["scale"]),
            "crossings": tuple(Crossing.from_dict(item) for item in listed(data["crossings"])),
            "against": None if against is None else Identity.from_dict(against),
            "findings": tuple(Finding.from_dict(item) for item in listed(data["findings"])),
        }
        return cls(**{**known, **read})

    def save(self, path: str | Path) -> Path:
        """Write the JSON report in one atomic step and give back its path."""
        from memaudit.report_files import write_json

        return write_json(self.to_dict(), path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a report that `save` wrote."""
        from memaudit.report_files import read_json

        return cls.from_dict(read_json(path))
