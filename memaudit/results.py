"""The frozen records that an audit produces, and their strict JSON form."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from memaudit.records import Record

if TYPE_CHECKING:
    from pathlib import Path

#: Rises when a field of the JSON report changes its meaning or goes away.
SCHEMA = 1

KINDS = (
    "memoryless",
    "finite",
    "exponential",
    "polynomial",
    "persistent",
    "growing",
    "undetermined",
)
SEVERITIES = ("note", "warning", "error")


class Status(StrEnum):
    """Outcome of one measurement; the value is the sentence shown to the user."""

    OK = "measured"
    NOT_MEASURED = "not measured"
    BELOW_FLOOR = "the response never rises above the numerical floor"
    TOO_FEW_LAGS = "too few lags rise above ten times the numerical floor to tell"
    DIVERGED = "the response is not finite; the curve ends where it overflows"
    UNSETTLED = "the state had not settled before the input was switched off"
    INTERRUPTED = "interrupted; the curve rests on the probes that were finished"


def _pair(value: Any) -> tuple[Any, Any] | None:
    return None if value is None else (value[0], value[1])


@dataclass(frozen=True, slots=True, eq=False)
class Decay(Record):
    """How a memory curve falls, and over which lags that was seen.

    `rate` is the beta of exp(-beta·t), negative when the curve grows; `exponent` the alpha of
    t^-alpha; `support` the number of lags after which a finite memory is over. `interval` belongs
    to the rate or to the exponent, whichever the kind has. `confidence` runs from 0 to 1.
    """

    kind: str
    rate: float | None = None
    exponent: float | None = None
    interval: tuple[float, float] | None = None
    window: tuple[int, int] | None = None
    confidence: float = 0.0
    support: int | None = None

    def __str__(self) -> str:
        text = self.kind
        if self.rate is not None:
            text += f", rate {self.rate:.4g}"
        if self.exponent is not None:
            text += f", exponent {self.exponent:.4g}"
        if self.interval is not None:
            text += f" [{self.interval[0]:.4g}, {self.interval[1]:.4g}]"
        if self.support is not None:
            text += f", over after {self.support} lags"
        if self.window is not None:
            text += f", seen over lags {self.window[0]} to {self.window[1]}"
        return text

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        pairs = {"interval": _pair(data["interval"]), "window": _pair(data["window"])}
        return cls(**{**data, **pairs})


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Curve(Record):
    """One memory function: the supremum over probes at every lag, and what was concluded.

    `values` is a lower bound of the supremum unless `exact`; `median` is over the same probes.
    `floor` is the numerical noise in the unit of the values, `noise` the part of it by which two
    identical runs differed. `horizon` is the lag from which the
    envelope stays below epsilon times its maximum, None when that lies beyond the window, or
    below ten times the floor, where nobody can see it.
    `half_life` counts the lags from the largest value until the envelope has halved; where an
    exponential has not halved inside the window, it is log(2) / rate. `holder` is the size of the
    probe that holds the supremum at the last lag above the floor, None when it is exact.
    `at_edge` says that the supremum kept rising at the end of the amplitude grid.
    """

    query: str
    normalization: str
    lags: np.ndarray
    values: np.ndarray
    median: np.ndarray
    floor: float
    status: Status
    decay: Decay
    horizon: int | None
    half_life: float | None
    epsilon: float
    probes: int
    exact: bool
    at_edge: bool
    noise: float = 0.0
    holder: float | None = None
    prefix: int | None = None

    def __repr__(self) -> str:
        return (
            f"Curve({self.query}: {self.decay}; horizon {self.horizon}, half-life "
            f"{self.half_life}, {len(self.values)} lags)"
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        return cls(
            **{
                **data,
                "lags": np.asarray(data["lags"], dtype=np.int64),
                "values": np.asarray(data["values"], dtype=np.float64),
                "median": np.asarray(data["median"], dtype=np.float64),
                "status": Status[data["status"].upper()],
                "decay": Decay.from_dict(data["decay"]),
            }
        )


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


@dataclass(frozen=True, slots=True, eq=False)
class Finding(Record):
    """Something that a person should know, with a permanent code and the advice."""

    code: str
    name: str
    severity: str
    message: str
    advice: str
    where: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Recurrence(Record):
    """One recurrent layer of a model: its name, cell and size."""

    layer: str
    cell: str
    size: int
    parameters: int
    directions: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class Identity(Record):
    """What was audited: where it came from and how it was opened.

    `coverage` is the share of the parameters that the audited computation uses. `assumed` maps
    every option that the source does not state to the value taken and the reason.
    """

    source: str
    adapter: str
    family: str
    parameters: int
    dtype: str
    device: str
    sha256: str = ""
    description: str = ""
    coverage: float = 1.0
    recurrences: tuple[Recurrence, ...] = ()
    assumed: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        layers = tuple(Recurrence.from_dict(item) for item in data["recurrences"])
        return cls(**{**data, "recurrences": layers, "notes": tuple(data["notes"])})


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Report(Record):
    """A whole audit. `complete` is False when it was cut short; what was measured is kept.

    `layers` holds the curves of every part that was audited by itself, by layer and query; for a
    host model `memory` holds, per query, the curve of the layer that remembers longest.
    """

    subject: Identity
    settings: dict[str, Any]
    assumptions: tuple[Assumption, ...] = ()
    memory: dict[str, Curve] = field(default_factory=dict)
    layers: dict[str, dict[str, Curve]] = field(default_factory=dict)
    spectrum: tuple[Any, ...] = ()
    stability: Any = None
    precision: Any = None
    recall: Any = None
    findings: tuple[Finding, ...] = ()
    complete: bool = True
    errors: tuple[dict[str, str], ...] = ()
    timing: dict[str, float] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        curves = "".join(f"\n  {curve!r}" for curve in self.memory.values())
        codes = " ".join(finding.code for finding in self.findings) or "none"
        title = f"{self.subject.source}: {self.subject.description}"
        return f"Report({title}{curves}\n  findings: {codes})"

    def to_dict(self) -> dict[str, Any]:
        """The JSON report: schema number first, then the version, then the fields."""
        from memaudit import __version__

        return {"schema": SCHEMA, "memaudit": __version__, **Record.to_dict(self)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The inverse of `to_dict`; refuses a schema that it does not know."""
        from memaudit.report_files import check_schema, corrupt

        check_schema(data)
        try:
            return cls._from_known(data)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise corrupt(error) from error

    @classmethod
    def _from_known(cls, data: dict[str, Any]) -> Self:
        known = {f.name: data[f.name] for f in fields(cls)}
        extra = set(data) - set(known) - {"schema", "memaudit"}
        if extra:
            raise ValueError(f"unknown fields {', '.join(sorted(extra))}")
        curves = {name: Curve.from_dict(item) for name, item in data["memory"].items()}
        layers = {
            layer: {name: Curve.from_dict(item) for name, item in group.items()}
            for layer, group in data["layers"].items()
        }
        return cls(
            **{
                **known,
                "subject": Identity.from_dict(data["subject"]),
                "assumptions": tuple(Assumption.from_dict(item) for item in data["assumptions"]),
                "memory": curves,
                "layers": layers,
                "spectrum": tuple(data["spectrum"]),
                "findings": tuple(Finding.from_dict(item) for item in data["findings"]),
                "errors": tuple(data["errors"]),
            }
        )

    def save(self, path: str | Path) -> Path:
        """Write the JSON report in one atomic step and give back its path."""
        from memaudit.report_files import write_json

        return write_json(self.to_dict(), path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a report that `save` wrote."""
        from memaudit.report_files import read_json

        return cls.from_dict(read_json(path))
