"""What of the past can be read back from the states of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from memaudit.errors import clean
from memaudit.memory.result import Status
from memaudit.records import Floats, Record, Unbounded
from memaudit.report import Result


@dataclass(frozen=True, slots=True, eq=False)
class StateRecall(Record):
    """The inputs of so many steps, or components of a sparse basis, read back from one state.

    `count` steps, or functions of the basis; `rank` in float64 and, `rounded_rank`, of the state as
    its dtype rounds it; `condition` is infinite where the inputs outnumber what the state tells.
    `error` is that of the least-squares inputs as a share of the inputs, `rounded_error` the same
    from the rounded state.
    """

    count: int
    rank: int
    rounded_rank: int
    condition: Unbounded
    error: float
    rounded_error: float


@dataclass(frozen=True, slots=True, eq=False)
class StationaryRecall(Record):
    """R²(lag) of iid inputs that came for ever, exactly: b_kᵀ P^-1 b_k, P = sum_j b_j b_jᵀ.

    `values` is the mean over the inputs and does not depend on how many lags are asked for;
    `capacity`, its sum over these lags and the inputs, does. `whole` is the sum over all lags: the
    rank. `rounded_…` are those of a state whose numbers a dtype rounds.
    """

    values: Floats
    rounded_values: Floats
    capacity: float
    rounded_capacity: float
    whole: float
    rounded_whole: float


@dataclass(frozen=True, slots=True, eq=False)
class LinearRecall(Record):
    """The reachability matrix V_k = [A^(k-1) B, …, A B, B] of one linear layer, x_k = V_k u_{1:k}.

    `numbers` are the real ones that are free in the state, that of one input in a bank, whose
    `channels` were looked at: ranks and conditions are then those of the worst. `lengths` has a
    record for every k, `sparse` one for every number of Haar functions of which inputs of `steps`
    steps are made. `values` is the exact R²(lag) of iid inputs from the state `steps` steps after
    rest, as a mean over the inputs, and `capacity` its sum over lags and inputs, the rank;
    `rounded_values` and `rounded_capacity` are those of a state in `dtype`, whose range of
    exponents is not looked at. `errors` and `rounded_errors` are those of every lag at `steps`
    steps. `stationary` has no rest to begin with; None where some |lambda| >= 1, or where a layer
    that does not tell its matrix had not forgotten in time.
    """

    layer: str
    numbers: int
    inputs: int
    channels: int
    steps: int
    dtype: str
    status: Status
    lengths: tuple[StateRecall, ...]
    sparse: tuple[StateRecall, ...]
    values: Floats
    rounded_values: Floats
    errors: Floats
    rounded_errors: Floats
    capacity: float | None
    rounded_capacity: float | None
    stationary: StationaryRecall | None = None

    def __repr__(self) -> str:
        most = "no capacity" if self.capacity is None else f"capacity {self.capacity:.4g}"
        return f"LinearRecall({self.layer!r}: {most} of {self.numbers} numbers, {self.steps} steps)"


@dataclass(frozen=True, slots=True, eq=False)
class Decoding(Record):
    """R²(lag) of past iid inputs from one state by the best linear readout.

    `kind` says what was read: "state" is the whole state of a recurrence, "hidden" what a layer
    passes on, "answers" the model's own. `values` is the mean over the `inputs` channels; what
    does not rise above the measured `floor`, or the scatter of that lag, is not counted in
    `capacity`, the sum over lags and channels, which is at most the `numbers` of the state. `half`
    counts the lags, from 0 on, up to which R² is at least one half. `exact` values are the closed
    form, from no samples. `used` is less than `numbers` where a wide state was projected at random.
    `stationary` is False where the state was still on its way from rest, or never comes to an end
    of it. `whole` is the capacity over all lags, not only those asked for, where it is known.
    """

    state: str
    kind: str
    numbers: int
    used: int
    inputs: int
    values: Floats
    floor: float
    capacity: float | None
    half: int
    samples: int
    exact: bool
    status: Status
    stationary: bool = True
    whole: float | None = None

    @property
    def told(self) -> str:
        """The capacity beside what it could be at most."""
        if self.capacity is None:
            return f"{self.numbers} numbers, capacity not measured"
        return f"capacity {self.capacity:.4g} of {self.numbers} numbers"

    def __repr__(self) -> str:
        return f"Decoding({self.state!r}, {clean(self.kind)}: {self.told}, {len(self.values)} lags)"


@dataclass(frozen=True, slots=True, eq=False)
class Recall(Result):
    """What can be read back; `fed` says from which inputs, `note` why something is missing."""

    linear: tuple[LinearRecall, ...]
    decodings: tuple[Decoding, ...]
    lags: int
    fed: str
    status: Status
    note: str = ""
    where: str = ""
    others: tuple[Recall, ...] = ()

    @property
    def capacity(self) -> float | None:
        """The largest memory capacity of a state, None when none was measured."""
        return None if self.fullest is None else self.fullest.capacity

    @property
    def fullest(self) -> Decoding | None:
        """The state with the largest memory capacity."""
        parts = (self, *self.others)
        found = [d for part in parts for d in part.decodings if d.capacity is not None]
        return max(found, key=lambda item: item.capacity or 0.0, default=None)

    def __repr__(self) -> str:
        most = self.fullest
        told = str(self.status.value) if most is None else most.told
        return f"Recall({told}, {self.lags} lags)"

    @classmethod
    def joined(cls, parts: Mapping[str, Self]) -> Self:
        """The first part of a host, with the other parts behind it."""
        first, *rest = (replace(own, where=part) for part, own in parts.items())
        return replace(first, others=tuple(rest))
