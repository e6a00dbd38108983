"""The exact memory function of a linear layer beside the one that was measured on it."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np

from memaudit.errors import clean
from memaudit.records import Record, plain
from memaudit.results.curve import Decay, Status
from memaudit.results.reading import alike, floats, lags_of

#: A report file keeps this many lags: the first ones, then a geometric grid to the last.
MOST_STORED, FIRST_STORED = 512, 128
#: JSON has no infinity; an answer that is not finite is infinitely far from the kernel.
ENDLESS = "infinite"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ClosedForm(Record):
    """The memory function of one linear time-invariant layer, exact and measured.

    `exact` is M(t) = max_i sum_j |rho_ij(t)| at the `lags`, the largest answer to an impulse of
    size one, from the closed form of the kernel rho; `measured` is the same from the answers of
    the running layer. Lag 0 is the present, not memory: verdicts rest on the lags from 1 on.
    `floor` is the rounding of the closed form, `measured_floor` that of the answers. `deviation` is
    the largest difference between answer and kernel as a share of the largest memory, None when
    nothing was measured, to be compared with `tolerance`. `fed` says which impulses were fed.
    `count` is how many lags there were; a report file keeps at most 512.
    """

    layer: str
    lags: np.ndarray
    exact: np.ndarray
    measured: np.ndarray
    floor: float
    measured_floor: float
    status: Status
    decay: Decay
    horizon: int | None
    half_life: float | None
    measured_status: Status
    measured_decay: Decay
    measured_horizon: int | None
    measured_half_life: float | None
    epsilon: float
    deviation: float | None
    tolerance: float
    fed: str
    count: int
    note: str = ""
    where: str = ""

    def __repr__(self) -> str:
        return (
            f"ClosedForm({clean(self.layer)}: {self.decay}; horizon {self.horizon}, measured "
            f"{self.measured_horizon}; deviation {self.deviation})"
        )

    @property
    def agrees(self) -> bool | None:
        """Whether the answers are those of the kernel, up to rounding; None: not measured."""
        return None if self.deviation is None else self.deviation <= self.tolerance

    def to_dict(self) -> dict[str, Any]:
        """Plain values; of many lags a geometric grid is kept."""
        rows = kept(len(self.lags))
        data = {f.name: plain(getattr(self, f.name)) for f in fields(self)}
        for name in ("lags", "exact", "measured"):
            values = getattr(self, name)
            # A layer whose answer overflows earlier than its kernel has fewer measured values.
            data[name] = values[rows[rows < len(values)]].tolist()
        far = self.deviation is not None and math.isinf(self.deviation)
        return {**data, "deviation": ENDLESS if far else data["deviation"]}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The inverse of `to_dict`, as far as lags were kept."""
        far = data["deviation"] == ENDLESS
        lags, exact = lags_of(data["lags"]), floats(data["exact"])
        measured = floats(data["measured"])
        alike(lags=lags[: len(measured)], measured=measured)
        alike(lags=lags, exact=exact)
        return cls(
            **{
                **data,
                "lags": lags,
                "exact": exact,
                "measured": measured,
                "status": Status[data["status"].upper()],
                "decay": Decay.from_dict(data["decay"]),
                "measured_status": Status[data["measured_status"].upper()],
                "measured_decay": Decay.from_dict(data["measured_decay"]),
                "deviation": math.inf if far else data["deviation"],
            }
        )


def kept(count: int) -> np.ndarray:
    """The positions among `count` lags that a report file keeps, first and last among them."""
    if count <= MOST_STORED:
        return np.arange(count)
    later = np.geomspace(FIRST_STORED, count - 1, MOST_STORED - FIRST_STORED)
    return np.unique(np.concatenate([np.arange(FIRST_STORED), later.round().astype(np.int64)]))
