"""What was audited: the model, its recurrent layers, and how it was opened."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

from memaudit.records import Record
from memaudit.results.reading import listed


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
    every option that the source does not state to the value taken and the reason. `whole` is False
    for a host, whose parts are run one by one. `context` is how many steps the model is said to be
    made for, `longest` how many it can be run for; None when nothing says so, or limits it.
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
    whole: bool = True
    context: int | None = None
    longest: int | None = None

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        layers = tuple(Recurrence.from_dict(item) for item in listed(data.get("recurrences", ())))
        notes = tuple(listed(data.get("notes", ())))
        return cls(**{**data, "recurrences": layers, "notes": notes})
