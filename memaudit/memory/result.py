"""A memory curve: what was measured at every lag, and what was concluded from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import ClassVar, Self

import numpy as np

from memaudit.errors import clean
from memaudit.records import Floats, Integers, Record
from memaudit.report import Result

KINDS = (
    "memoryless",
    "finite",
    "exponential",
    "polynomial",
    "persistent",
    "growing",
    "undetermined",
)


class Status(StrEnum):
    """Outcome of one measurement; the value is the sentence shown to the user."""

    OK = "measured"
    NOT_MEASURED = "not measured"
    BELOW_FLOOR = "no memory rises above the numerical floor"
    TOO_FEW_LAGS = "fewer than 20 lags rise above ten times the numerical floor, too few to tell"
    DIVERGED = "the response is not finite; the curve ends where it overflows"
    UNSETTLED = "the state had not settled before the input was switched off"
    NO_TOKENS = "the model takes no token ids"
    NO_TOKENIZER = "the model has no tokenizer that fits it, so no text can be fed"
    UNKNOWN_TEXT = "the tokenizer does not know most of the text"
    TOO_SHORT = "the model, or the text, takes too few steps for this query"
    NO_STATE = "the model shows no state after every step that could be read"
    INTERRUPTED = "interrupted; the curve rests on the probes that were finished"


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

    @property
    def verdict(self) -> str:
        """Kind, and rate or exponent with its interval."""
        span = "" if self.interval is None else f" [{self.interval[0]:.4g}, {self.interval[1]:.4g}]"
        if self.rate is not None:
            return f"{self.kind}, rate {self.rate:.4g}{span}"
        return self.kind if self.exponent is None else f"{self.kind}, exponent {self.exponent:.4g}"

    def __str__(self) -> str:
        text = clean(self.kind)
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
    `at_edge` says that the supremum kept rising at the end of the amplitude grid. `trials` names
    what was fed where that has names, such as the words that were repeated.
    """

    query: str
    normalization: str
    lags: Integers
    values: Floats
    median: Floats
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
    trials: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not len(self.lags) == len(self.values) == len(self.median):
            raise ValueError("lags, values and median differ in count")
        if (np.diff(self.lags, prepend=-1) <= 0).any():
            raise ValueError("the lags do not rise from 0 on")

    def __repr__(self) -> str:
        from memaudit.reports import wording

        told = f"horizon {wording.horizon(self)}, half-life {wording.half_life(self)}"
        return f"Curve({clean(self.query)}: {self.decay}; {told}, {len(self.values)} lags)"


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
class AssumptionsResult(Result):
    """Which assumptions of the theory the model, or every part of a host, meets."""

    attribute: ClassVar[str] = "items"
    absent: ClassVar[tuple[Assumption, ...]] = ()

    items: tuple[Assumption, ...]

    def holds(self, name: str) -> bool:
        """Whether one was measured and holds everywhere."""
        found = [item.holds for item in self.items if item.name == name]
        return bool(found) and all(found)

    @classmethod
    def joined(cls, parts: Mapping[str, Self]) -> Self:
        return cls(
            tuple(replace(item, where=part) for part, own in parts.items() for item in own.items)
        )


@dataclass(frozen=True, slots=True, eq=False)
class Facts(Record):
    """What is known of a model when the queries are run.

    `outputs` is the width of an answer, `rounding` the relative rounding of its numbers.
    """

    causal: bool
    linear: bool
    outputs: int
    rounding: float


@dataclass(frozen=True, slots=True, eq=False)
class MemoryResult(Result):
    """Memory curves by query, and by layer and query.

    For a model that ran as a whole `layers` are those of the hidden state after every layer, from
    the same passes as `curves`. For a host (`whole` False) they are those of the parts, each run by
    itself, and `curves` holds, per query, the one of the part that remembers longest. `requested`
    are the queries that were asked for, `baseline` what counted as zero input.
    """

    attribute: ClassVar[str] = "curves"
    absent: ClassVar[dict[str, Curve]] = {}

    curves: dict[str, Curve]
    layers: dict[str, dict[str, Curve]] = field(default_factory=dict)
    requested: tuple[str, ...] = ()
    baseline: str = "zero"
    whole: bool = True
    facts: Facts | None = None

    @classmethod
    def joined(cls, parts: Mapping[str, Self]) -> Self:
        from memaudit.numerics.reach import longest_of

        layers = {part: own.curves for part, own in parts.items()}
        first = next(iter(parts.values()))
        return replace(first, curves=longest_of(layers), layers=layers, whole=False)

    def measured(self) -> list[str]:
        """The queries that have an answer."""
        return [query for query, curve in self.curves.items() if len(curve.values)]
