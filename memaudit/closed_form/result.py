"""The exact memory function of a linear layer beside the measured one, and what to say of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, ClassVar, Self

from memaudit.errors import clean
from memaudit.interfaces import Status
from memaudit.numerics.verdict import SIGNAL_OVER_FLOOR, Decay
from memaudit.records import Floats, Integers, Record, Unbounded
from memaudit.report import Finding, Metric, Result
from memaudit.rules import Rule, rule
from memaudit.sections import Axis, Beyond, Cell, Column, Figure, Line, Section, Table

if TYPE_CHECKING:
    import numpy as np

    from memaudit.report import Report

DEVIATION = Metric(
    "deviation",
    over="max",
    better="less",
    help="largest difference of answers from the closed form, as a share of the largest memory",
    meaning="Where it is more than rounding, the layer does not compute what its weights say.",
)
#: A report file keeps this many lags: the first ones, then a geometric grid to the last.
MOST_STORED, FIRST_STORED = 512, 128


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LayerKernel(Record):
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
    def place(self) -> str:
        """The layer, behind the part of a host that it stands in."""
        return f"{self.where}.{self.layer}" if self.where else self.layer

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

    declared: ClassVar[tuple[Metric, ...]] = (DEVIATION,)
    rules: ClassVar[tuple[Rule, ...]]
    attribute: ClassVar[str] = "layers"
    absent: ClassVar[tuple[LayerKernel, ...]] = ()

    layers: tuple[LayerKernel, ...]

    def metrics(self) -> Iterator[Metric]:
        for item in self.layers:
            yield DEVIATION.at(item.deviation, layer=item.place)

    def sections(self) -> Iterator[Section]:
        if not self.layers:
            return
        yield Section(
            "Closed form",
            line=self._line(),
            text=(
                "Linear layers have a memory function in closed form. The running layer must "
                "answer as its kernel says; the difference is a share of the largest memory.",
                *self._notes(),
            ),
            tables=(self._table(),),
            figures=tuple(self._figures()),
        )

    def _line(self) -> str:
        known = [item for item in self.layers if item.deviation is not None]
        count = f"{len(self.layers)} linear layer{'s' if len(self.layers) > 1 else ''}"
        if not known:
            return f"{count}, not measured"
        worst = max(known, key=lambda item: item.deviation or 0.0)
        size = "infinite" if math.isinf(worst.deviation or 0.0) else f"{worst.deviation:.0e}"
        wrong = sum(item.agrees is False for item in known)
        agree = f"{wrong} not as the kernel says" if wrong else "as the kernel says"
        return f"{count}, {agree}: largest difference {size} ({clean(worst.place)})"

    def _table(self) -> Table:
        columns = (
            Column("layer", key=True),
            Column("exact memory", help="kind of decay of the closed form"),
            Column("exact horizon", help="lags until the exact memory is gone"),
            Column("measured horizon", help="the same, from the answers of the running layer"),
            Column("difference", format=".0e", better="less", help="of answers from the kernel"),
        )
        rows = tuple(
            (
                clean(item.place),
                clean(_strength(item.decay)),
                _horizon(item, item.exact, item.floor, item.status, item.decay, item.horizon),
                _horizon(
                    item,
                    item.measured,
                    item.measured_floor,
                    item.measured_status,
                    item.measured_decay,
                    item.measured_horizon,
                ),
                item.deviation,
            )
            for item in self.layers
        )
        hidden = any(HIDDEN in row for row in rows)
        notes = (f"{HIDDEN}: the floor hides the horizon",) if hidden else ()
        return Table(columns, rows, notes=notes)

    def _figures(self) -> Iterator[Figure]:
        drawn = [item for item in self.layers if len(item.lags)]
        if not drawn:
            return
        series = [
            Line(f"{clean(item.place)} {name}", item.lags[: len(values)], values, dashed, shown)
            for shown, item in zip([True] + [False] * (len(drawn) - 1), drawn, strict=True)
            for name, values, dashed in (
                ("exact", item.exact, False),
                ("measured", item.measured, True),
            )
        ]
        yield Figure(
            title="Exact and measured memory",
            x=Axis("lag (steps)"),
            y=Axis("memory", log=True),
            series=tuple(series),
            caption="The measured curve lies on the exact one where the layer does what its "
            "kernel says.",
        )

    def _notes(self) -> Iterator[str]:
        noted = [(clean(item.note), clean(item.place)) for item in self.layers if item.note]
        for note, group in groupby(noted, key=lambda pair: pair[0]):
            names = [name for _, name in group]
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            yield f"{names[0]}{more}: {note}"


#: Stands where the curve sinks into its floor before it has fallen to epsilon.
HIDDEN = "?"


def _horizon(
    item: LayerKernel,
    values: np.ndarray,
    floor: float,
    status: Status,
    decay: Decay,
    horizon: int | None,
) -> Cell:
    """The horizon, the last lag where it lies beyond, HIDDEN, or None where no memory was seen."""
    unknown = (Status.NOT_MEASURED, Status.BELOW_FLOOR, Status.TOO_FEW_LAGS)
    if horizon is not None:
        return horizon
    if status in unknown or decay.kind == "memoryless" or not len(values):
        return None
    lags = item.lags[: len(values)]
    memory = values[lags >= 1]  # lag 0 is the present
    visible = SIGNAL_OVER_FLOOR * floor
    endless = decay.kind in ("persistent", "growing")
    if not endless and len(memory) and memory[-1] <= visible > item.epsilon * memory.max():
        return HIDDEN
    return Beyond(int(lags[-1]))


def _strength(decay: Decay) -> str:
    """The kind of decay with its rate, exponent or support."""
    # A power law is one inside its window only.
    power = decay.kind == "polynomial" and decay.window is not None
    words = decay.kind + (f" {decay.window[0]}-{decay.window[1]}" if power else "")  # type: ignore[index]
    if decay.exponent is not None:
        return f"{words}, exponent {decay.exponent:.4g}"
    if decay.rate is not None:
        return f"{words}, rate {decay.rate:.4g}"
    return words if decay.support is None else f"{words}, support {decay.support}"


def kept(count: int) -> np.ndarray:
    """The positions among `count` lags that a report file keeps, first and last among them."""
    import numpy as np

    if count <= MOST_STORED:
        return np.arange(count)
    later = np.geomspace(FIRST_STORED, count - 1, MOST_STORED - FIRST_STORED)
    return np.unique(np.concatenate([np.arange(FIRST_STORED), later.round().astype(np.int64)]))


@rule("MA116", "closed-form-disagrees", "error", needs=("closed-form",))
def closed_form_disagrees(report: Report) -> Iterable[Finding]:
    """The answers of a linear layer are not those of its closed form.

    The kernel of a linear time-invariant layer follows from its weights in closed form, and an
    impulse that is fed to the layer must be answered by that kernel. Here the two differ by more
    than rounding allows: 1e-6 of the largest memory in float64, 1e-3 in float32. Either the layer
    is run in another way than its weights say, or they were read wrongly: another discretization,
    another parameterization, a step size of another meaning. The curves of the whole model rest on
    the same reading. Distrust this audit, check the settings that were assumed, and report the
    model.
    """
    for item in report.closed_form:
        if item.agrees is not False:
            continue
        if math.isinf(item.deviation):
            sizes = "the answer is not finite where the kernel is, or not zero where it is"
        else:
            sizes = (
                f"they differ by {item.deviation:.2g} of the largest memory, where rounding "
                f"explains {item.tolerance:.2g}"
            )
        yield closed_form_disagrees.finding(
            f"the layer and its closed form disagree ({sizes})",
            "distrust this audit, correct the assumed settings (--set KEY=VALUE), report the model",
            where=f"{item.where}: {item.layer}" if item.where else item.layer,
        )


ClosedFormResult.rules = (closed_form_disagrees,)
