"""What is said of how a memory curve falls: a record, which is read where no number is computed."""

from __future__ import annotations

from dataclasses import dataclass

from memaudit.errors import clean
from memaudit.records import Record

#: A value counts as signal from ten times the measured floor on.
SIGNAL_OVER_FLOOR = 10.0


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
