"""The exact memory function of a linear layer beside the one that was measured on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from memaudit.errors import clean
from memaudit.memory.result import Decay, Status
from memaudit.records import Floats, Integers, Record, Unbounded
from memaudit.report import Result

#: A report file keeps this many lags: the first ones, then a geometric grid to the last.
MOST_STORED, FIRST_STORED = 512, 128


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
    lags: Integers
    exact: Floats
    measured: Floats
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
    deviation: Unbounded | None
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

    def __post_init__(self) -> None:
        # A layer whose answer overflows earlier than its kernel has fewer measured values.
        if len(self.lags) != len(self.exact) or len(self.measured) > len(self.lags):
            raise ValueError("lags, exact and measured values differ in count")

    def stored(self) -> Self:
        """Of many lags a geometric grid is kept."""
        rows = kept(len(self.lags))
        return replace(
            self,
            lags=self.lags[rows],
            exact=self.exact[rows],
            measured=self.measured[rows[rows < len(self.measured)]],
        )


@dataclass(frozen=True, slots=True, eq=False)
class ClosedFormResult(Result):
    """Every linear time-invariant layer, exact beside measured."""

    attribute: ClassVar[str] = "layers"
    absent: ClassVar[tuple[ClosedForm, ...]] = ()

    layers: tuple[ClosedForm, ...]

    @classmethod
    def joined(cls, parts: Mapping[str, Self]) -> Self:
        return cls(
            tuple(replace(item, where=part) for part, own in parts.items() for item in own.layers)
        )


def kept(count: int) -> np.ndarray:
    """The positions among `count` lags that a report file keeps, first and last among them."""
    if count <= MOST_STORED:
        return np.arange(count)
    later = np.geomspace(FIRST_STORED, count - 1, MOST_STORED - FIRST_STORED)
    return np.unique(np.concatenate([np.arange(FIRST_STORED), later.round().astype(np.int64)]))
