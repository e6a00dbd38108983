"""What of the past can be read back from the states of a model, and what to say of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

from memaudit.errors import clean
from memaudit.interfaces import Status
from memaudit.records import Floats, Record, Unbounded
from memaudit.report import Metric, Result
from memaudit.sections import Axis, Beyond, Column, Figure, Line, Section, Table

if TYPE_CHECKING:
    import numpy as np

CAPACITY = Metric(
    "capacity",
    over="max",
    better="more",
    help="past inputs that a state holds, in all",
    meaning="The sum over lags of R^2, the share of an input's variance that a linear readout "
    "finds in the state so many steps later. It is at most the number of real numbers in the "
    "state.",
)
#: Inputs that are off by less than this share of their size count as read back.
RECOVERED = 0.01
#: Lags at which the table gives R².
SHOWN_LAGS = (0, 1, 8)


@dataclass(frozen=True, slots=True, eq=False)
class StateRecall(Record):
    """The inputs of so many steps, or components of a sparse basis, read back from one state.

    `count` steps, or functions of the basis; `rank` in float64 and, `rounded_rank`, of the state as
    its dtype rounds it; `condition` is infinite where the inputs outnumber what the state holds.
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

    `values` is the mean over the inputs and does not depend on how many lags there are;
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
    whose matrix is not known had not forgotten in time.
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
    of it. `whole` is the capacity over all lags, not only those measured, where it is known.
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
    def summary(self) -> str:
        """The capacity beside what it could be at most."""
        if self.capacity is None:
            return f"{self.numbers} numbers, capacity not measured"
        return f"capacity {self.capacity:.4g} of {self.numbers} numbers"

    def __repr__(self) -> str:
        return (
            f"Decoding({self.state!r}, {clean(self.kind)}: {self.summary}, {len(self.values)} lags)"
        )


@dataclass(frozen=True, slots=True, eq=False)
class RecallResult(Result):
    """What can be read back; `fed` says from which inputs, `note` why something is missing.

    The recall of a host has that of its first part, named `where`, and the `others`.
    """

    declared: ClassVar[tuple[Metric, ...]] = (CAPACITY,)

    linear: tuple[LinearRecall, ...]
    decodings: tuple[Decoding, ...]
    lags: int
    fed: str
    status: Status
    note: str = ""
    where: str = ""
    others: tuple[RecallResult, ...] = ()

    @property
    def parts(self) -> tuple[RecallResult, ...]:
        """The recall of every part of a host; of any other model it is one."""
        return (self, *self.others)

    @property
    def capacity(self) -> float | None:
        """The largest memory capacity of a state, None when none was measured."""
        return None if self.fullest is None else self.fullest.capacity

    @property
    def fullest(self) -> Decoding | None:
        """The state with the largest memory capacity."""
        found = [d for part in self.parts for d in part.decodings if d.capacity is not None]
        return max(found, key=lambda item: item.capacity or 0.0, default=None)

    def __repr__(self) -> str:
        most = self.fullest
        summary = str(self.status.value) if most is None else most.summary
        return f"Recall({summary}, {self.lags} lags)"

    @classmethod
    def joined(cls, parts: Mapping[str, Self]) -> Self:
        """The first part of a host, with the other parts behind it."""
        first, *rest = (replace(own, where=part) for part, own in parts.items())
        return replace(first, others=tuple(rest))

    def metrics(self) -> Iterator[Metric]:
        states = {
            f"{part.where}.{item.state}".strip("."): item.capacity
            for part in self.parts
            for item in part.decodings
        }
        states |= {part.where or "the model": None for part in self.parts if not part.decodings}
        known = {state: value for state, value in states.items() if value is not None}
        unknown = tuple(state for state in states if state not in known)
        holder = max(known, key=known.__getitem__, default="")
        yield CAPACITY.at(known.get(holder), holder=holder, unknown=unknown)

    def sections(self) -> Iterator[Section]:
        tables = [t for t in (self._states(), self._layers()) if t.rows]
        fed = dict.fromkeys(clean(part.fed) for part in self.parts if part.fed)
        most = self.fullest
        yield Section(
            "Recall",
            line=str(self.status.value)
            if most is None
            else f"{most.summary} ({clean(most.state)})",
            text=(
                "How much of the input of so many steps ago a linear readout finds in a state "
                "(R^2), after inputs that came for ever. The capacity is the sum over lags and "
                "inputs, at most the numbers in the state.",
                *([f"Fed: {'; '.join(fed)}."] if fed else []),
                *self._notes(),
            ),
            tables=tuple(tables),
            figures=tuple(self._figures()),
        )

    def _states(self) -> Table:
        columns = (
            Column("layer", key=True),
            Column("read", help="exact: in closed form, from the matrices of the layer"),
            Column("numbers", help="real numbers in the state"),
            Column("inputs"),
            Column("capacity", better="more", help="sum of R^2 over lags and inputs"),
            Column("half", better="more", help="lags, from 0 on, with R^2 of one half or more"),
            *(Column(f"R^2 at {lag}", format=".2f", brief=False) for lag in SHOWN_LAGS),
            Column("floor", format=".0e", brief=False, help="R^2 that noise reaches"),
        )
        rows = tuple(
            (
                _place(part.where, item.state),
                "exact" if item.exact else clean(item.kind),
                item.numbers,
                item.inputs,
                item.capacity,
                Beyond(item.half - 1) if 0 < item.half == len(item.values) else item.half,
                *(float(v[0]) if len(v := item.values[lag:]) else None for lag in SHOWN_LAGS),
                item.floor,
            )
            for part in self.parts
            for item in part.decodings
        )
        return Table(columns, rows, title="Memory capacity by state")

    def _layers(self) -> Table:
        columns = (
            Column("linear layer", key=True),
            Column("numbers", help="real numbers that are free in the state"),
            Column("inputs"),
            Column("k", help="inputs after rest, as many as the state allows"),
            Column(
                "cond(V_k)", format=".3g", better="less", help="V_k leads from them to the state"
            ),
            Column("error", format=".1e", better="less", help="of V_k^+ x, x rounded as stored"),
            Column("rank", better="more", help="of V at all steps, in float64"),
            Column("rounded rank", better="more", brief=False, help="the same as stored"),
            Column(
                "Haar",
                better="more",
                brief=False,
                help="functions of which an input may be made and still be read back within 1 %",
            ),
        )
        read = [(part.where, one) for part in self.parts for one in part.linear if one.lengths]
        rows = []
        for where, item in read:
            room = max(item.numbers // (1 if item.channels else item.inputs), 1)
            fitting = [s for s in item.lengths if s.count <= room]
            most = max(fitting, key=lambda s: s.count, default=item.lengths[0])
            last = item.lengths[-1]
            recovered = [s.count for s in item.sparse if s.rounded_error <= RECOVERED]
            rows.append(
                (
                    _place(where, item.layer),
                    item.numbers,
                    item.inputs,
                    most.count,
                    most.condition,
                    most.rounded_error,
                    last.rank,
                    last.rounded_rank,
                    max(recovered, default=0) if item.sparse else None,
                )
            )
        notes = ()
        if read:
            first = read[0][1]
            notes = (f"Ranks at {first.steps} steps; states stored in {clean(first.dtype)}.",)
        return Table(
            columns, tuple(rows), "Inputs read back from the state of linear layers", notes
        )

    def _figures(self) -> Iterator[Figure]:
        import numpy as np

        series = [
            Line(_place(part.where, item.state), np.arange(len(item.values)), item.values)
            for part in self.parts
            for item in part.decodings
            if len(item.values)
        ]
        if series:
            yield Figure(
                title="R² by lag",
                x=Axis("lag (steps)"),
                y=Axis("R²"),
                series=tuple(series),
                caption="One: the input of so many steps ago can be read off exactly. Zero: it is "
                "gone.",
            )

    def _notes(self) -> Iterator[str]:
        for part in self.parts:
            named = [(part.where, part.status), (part.where, part.note)]
            named += [(_place(part.where, item.state), item.status) for item in part.decodings]
            named += [(_place(part.where, item.layer), item.status) for item in part.linear]
            for name, note in named:
                if note and note is not Status.OK:
                    yield clean(f"{name}: {note}" if name else str(note))


def lags_above(values: np.ndarray, level: float = 0.5) -> int:
    """How many lags, from 0 on, are at that level or above."""
    import numpy as np

    below = np.flatnonzero(values < level)
    return int(below[0]) if len(below) else len(values)


def _place(where: str, name: str) -> str:
    """A state behind the part of the model that it stands in, once where both are the same."""
    return clean(f"{where}.{name}" if where and where != name else name)
