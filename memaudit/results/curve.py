"""A memory curve: what was measured at every lag, and what was concluded from it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

import numpy as np

from memaudit.errors import clean
from memaudit.records import Record
from memaudit.results.reading import alike, floats, lags_of, listed

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


def _pair(value: Any) -> tuple[Any, ...] | None:
    return None if value is None else tuple(listed(value))


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

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        pairs = {"interval": _pair(data.get("interval")), "window": _pair(data.get("window"))}
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
    `at_edge` says that the supremum kept rising at the end of the amplitude grid. `trials` names
    what was fed where that has names, such as the words that were repeated.
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
    trials: tuple[str, ...] = ()

    def __repr__(self) -> str:
        from memaudit.reports import wording

        told = f"horizon {wording.horizon(self)}, half-life {wording.half_life(self)}"
        return f"Curve({clean(self.query)}: {self.decay}; {told}, {len(self.values)} lags)"

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        rows = {name: floats(data[name]) for name in ("values", "median")}
        lags = lags_of(data["lags"])
        alike(lags=lags, **rows)
        return cls(
            **{
                **data,
                **rows,
                "lags": lags,
                "status": Status[data["status"].upper()],
                "decay": Decay.from_dict(data["decay"]),
                "trials": tuple(listed(data.get("trials", ()))),
            }
        )
