"""The eigenvalues of every recurrent layer's step, what follows from them, what to say of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar, Self

from memaudit.errors import clean
from memaudit.modes import AT_REST, LayerSpectrum
from memaudit.records import Record, Unbounded
from memaudit.report import Finding, Metric, Result
from memaudit.rules import SURE, Rule, retrofit_command, rule
from memaudit.sections import Axis, Column, Figure, Mark, Points, Section, Table

if TYPE_CHECKING:
    from memaudit.report import Report


MARGIN = Metric(
    "margin",
    over="min",
    better="more",
    signed=True,
    help="smallest 1 - |eigenvalue| of a step",
    meaning="The distance of the slowest mode from the unit circle, the boundary of stability. A "
    "mode with margin 0.01 keeps 99 % with every step; with margin 0 it never fades, with a "
    "negative one it grows. Below 1e-4 a small change of the weights, or a coarser number format, "
    "can push it over the boundary.",
)
TIME_SCALE = Metric(
    "time_scale",
    over="max",
    help="steps in which the slowest mode falls to 1/e",
    meaning="About 1 / margin. It is an estimate of the memory from the weights alone; how much of "
    "that mode reaches the answer, only the memory curves say.",
)
LYAPUNOV = Metric(
    "lyapunov",
    over="max",
    better="less",
    signed=True,
    help="largest Lyapunov exponent per step",
    meaning="How fast two states that differ by a little move apart under the same input: below 0 "
    "they meet again and the past is forgotten, above 0 they part, which is chaos.",
)
#: Words of the table.
TERMS = {
    "mode": "A direction of the state that one step multiplies by one number, its eigenvalue. The "
    "slowest mode, whose eigenvalue is nearest to 1 in size, lasts longest.",
    "eigenvalue": "The factor by which one step multiplies a mode of the state: below 1 in size "
    "the mode fades, at 1 it stays for ever, above 1 it grows.",
    "form": "The function that makes the eigenvalue from the stored weight, such as exp or direct; "
    "`memaudit list reparams` shows what each reaches.",
    "settled": "The state no longer moves under a constant input: the spectrum of a nonlinear "
    "recurrence is taken there, at rest under zero input first. Not settled says that it was still "
    "moving after the longest run that was tried; its eigenvalues are those of that moment only.",
    "over data": "The time scales that a layer has at other inputs than rest, where its step "
    "depends on them.",
}


@dataclass(frozen=True, slots=True, eq=False)
class Prediction(Record):
    """What the spectra of one place say about the memory curve of a query there.

    `rate` is the smallest -log |lambda| of all its layers, of which `layer` is the slowest at `at`;
    it is negative beyond the boundary. `measured` is the rate of the curve with its `interval`,
    None when it is no exponential. `complete` is False where something else may hold a memory: a
    layer without a spectrum, a recurrence that never came to rest, or one that reads time
    backwards, to which the oldest input is the newest.
    """

    query: str
    layer: str
    at: str
    rate: Unbounded
    time_scale: Unbounded
    measured: float | None
    interval: tuple[float, float] | None
    complete: bool
    where: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class SpectrumResult(Result):
    """Every recurrent layer's spectrum, and what the slowest modes predict for the curves.

    `unread` names recurrences of which no eigenvalue was seen.
    """

    declared: ClassVar[tuple[Metric, ...]] = (MARGIN, TIME_SCALE, LYAPUNOV)
    terms: ClassVar[Mapping[str, str]] = TERMS
    rules: ClassVar[tuple[Rule, ...]]
    attribute: ClassVar[str] = "layers"
    absent: ClassVar[tuple[LayerSpectrum, ...]] = ()

    layers: tuple[LayerSpectrum, ...]
    predictions: tuple[Prediction, ...] = ()
    unread: tuple[str, ...] = ()

    @classmethod
    def joined(cls, parts: Mapping[str, Self]) -> Self:
        own = parts.items()
        return cls(
            tuple(replace(item, where=part) for part, one in own for item in one.layers),
            tuple(replace(item, where=part) for part, one in own for item in one.predictions),
            tuple(dict.fromkeys(name for one in parts.values() for name in one.unread)),
        )

    def metrics(self) -> Iterator[Metric]:
        for item in self.layers:
            yield MARGIN.at(item.margin, layer=item.place)
            yield TIME_SCALE.at(item.time_scale, layer=item.place)
            yield LYAPUNOV.at(item.lyapunov, layer=item.place)
        for name in self.unread:
            yield from (metric.at(None, layer=name) for metric in self.declared)

    def sections(self) -> Iterator[Section]:
        if not self.layers:
            return
        worst = min(self.layers, key=lambda item: item.margin)
        more = f", nearest to the edge of {len(self.layers)}" if len(self.layers) > 1 else ""
        yield Section(
            "Spectrum",
            line=f"margin {worst.margin:.2e}, time scale {time_scale_text(worst)} "
            f"({clean(worst.place)}{more})",
            text=(
                "Eigenvalues of one step of every recurrent layer. Inside the unit circle a mode "
                "decays, on it it stays for ever, beyond it it grows; the margin is the distance "
                "of the slowest mode.",
                *self._notes(),
            ),
            tables=tuple(filter(None, (self._table(), self._predicted()))),
            figures=(self._plane(),),
        )

    def _table(self) -> Table:
        columns = (
            Column("layer", key=True),
            Column("cell"),
            Column("form", help="the function that makes the eigenvalue from the stored weight"),
            Column("modes"),
            Column("margin", format=".2e", better="more", help="smallest 1 - |eigenvalue|"),
            Column("time scale", help="steps in which the slowest mode falls to 1/e"),
            Column("over data", brief=False, help="time scale at other operating points"),
            Column("lyapunov", format=".3g", brief=False, better="less"),
        )
        rows = tuple(
            (
                clean(s.place),
                clean(s.cell, limit=60),
                clean(s.parameterization, limit=60),
                s.count,
                s.margin,
                s.time_scale,
                _range(s),
                s.lyapunov,
            )
            for s in self.layers
        )
        used = [i for i in range(len(columns)) if i < 6 or any(r[i] is not None for r in rows)]
        return Table(
            tuple(columns[i] for i in used), tuple(tuple(r[i] for i in used) for r in rows)
        )

    def _predicted(self) -> Table | None:
        pairs = [item for item in self.predictions if item.measured is not None]
        if not pairs:
            return None
        columns = (
            Column("part", key=True),
            Column("query", key=True),
            Column("predicted rate"),
            Column("measured rate"),
            Column("interval"),
            Column("slowest mode"),
        )
        rows = tuple(
            (
                clean(p.where),
                clean(p.query),
                p.rate,
                p.measured,
                None if p.interval is None else f"[{p.interval[0]:.4g}, {p.interval[1]:.4g}]",
                clean(f"{p.layer}, {p.at.partition(',')[0]}"),
            )
            for p in pairs
        )
        start = 0 if any(p.where for p in pairs) else 1
        title = "Rates predicted by the slowest mode, and measured"
        return Table(columns[start:], tuple(row[start:] for row in rows), title=title)

    def _plane(self) -> Figure:
        import numpy as np

        worst = min(item.margin for item in self.layers)
        return Figure(
            title="Eigenvalues of one step",
            x=Axis("Re"),
            y=Axis("Im"),
            series=tuple(
                Points(clean(s.place), np.real(s.eigenvalues), np.imag(s.eigenvalues))
                for s in self.layers
            ),
            marks=(Mark("boundary", radius=1.0), Mark("slowest mode", radius=abs(1.0 - worst))),
            caption="Boundary: the unit circle. The other circle goes through the slowest mode.",
            square=True,
        )

    def _notes(self) -> Iterator[str]:
        noted = [(clean(item.note), clean(item.place)) for item in self.layers if item.note]
        for note, group in groupby(noted, key=lambda pair: pair[0]):
            names = [name for _, name in group]
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            yield f"{names[0]}{more}: {note}"


def time_scale_text(item: LayerSpectrum) -> str:
    """The time scale of a spectrum in steps, in words."""
    return "infinite" if math.isinf(item.time_scale) else f"{item.time_scale:.4g} steps"


def _range(item: LayerSpectrum) -> str | None:
    scales = sorted(point.time_scale for point in item.points)
    ends = dict.fromkeys(f"{scale:.4g}" for scale in (*scales[:1], *scales[-1:]))
    return " to ".join(ends).replace("inf", "infinite") or None


# Rules

#: Margins below this are an alarm: a step of training, or rounding to fewer digits, is as large.
ALARM = 1e-4
#: |lambda| beyond 1 by no more than this is on the boundary: it grows e-fold in a million steps.
ROUNDING = 1e-6
#: Stored as they are, or by functions that reach the boundary at a finite weight.
REACHING = ("direct", "relu", "clip")
#: Rates within this factor agree: several modes together fall slower than one at first.
FACTOR = 2.0


def _by_place(
    report: Report, wanted: Callable[[LayerSpectrum], bool]
) -> Iterator[tuple[str, list[LayerSpectrum]]]:
    """The places with at least one spectrum of that sort, the smallest margin first."""
    for where in dict.fromkeys(item.where for item in report.spectrum):
        found = [item for item in report.spectrum if item.where == where and wanted(item)]
        if found:
            yield where, sorted(found, key=lambda item: item.margin)


def _more(others: list[LayerSpectrum], what: str) -> str:
    return f"; {len(others)} more recurrences {what}" if others else ""


@rule("MA201", "near-boundary", "warning", needs=("spectrum",))
def near_boundary(report: Report) -> Iterable[Finding]:
    """An eigenvalue of one step of the recurrence has a modulus within 1e-4 of 1, or is exactly 1.

    Its mode forgets only after ten thousand steps or never. A change of the weights of that size,
    by a step of fine-tuning or by storing them in bfloat16 or int8, can carry the mode over the
    boundary, behind which the state grows. Where the task needs a memory without end that is the
    price. Otherwise fine-tune with a parameterization that keeps the modes inside, and keep these
    weights in float32. Layers whose step depends on the data are judged at rest.
    """
    import numpy as np

    for where, items in _by_place(report, lambda item: -ROUNDING <= item.margin < ALARM):
        nearest, *others = items
        near = int((1.0 - np.abs(nearest.eigenvalues) < ALARM).sum())
        which = "is on" if abs(nearest.margin) <= ROUNDING else f"has {nearest.margin:.2g} left to"
        advice = "keep these weights in float32"
        # The gates of an LSTM decide how it decays: no weight of it stands for a mode.
        if not nearest.cell.endswith("LSTM"):
            command = retrofit_command(report, project=nearest.margin <= 0.0)
            advice += (
                f", and fine-tune in a stable parameterization: {command}"
                if command
                else "; they are in a stable parameterization already"
            )
        yield near_boundary.finding(
            f"{nearest.layer} ({nearest.cell}, {nearest.at}) {which} the boundary: {near} of "
            f"{nearest.count} modes within {ALARM:g}, time scale {time_scale_text(nearest)}"
            + _more(others, "are as near"),
            advice,
            where=where,
        )


@rule("MA202", "beyond-boundary", "error", milder="warning", needs=("spectrum",))
def beyond_boundary(report: Report) -> Iterable[Finding]:
    """An eigenvalue of one step of the recurrence has a modulus above 1 by more than rounding.

    In a linear layer that mode grows without end, and so does every error in it: on longer inputs
    than it was trained on the model overflows. In a nonlinear cell it means that the state at rest
    is unstable, which is a warning only: the nonlinearity may catch the state elsewhere, and the
    measured curves tell whether it does. Train with a parameterization that keeps the modes inside,
    or look for weights that were stored in too few digits. The report names the layer, the mode and
    how fast it grows.
    """
    for where, items in _by_place(report, lambda item: item.margin < -ROUNDING):
        nonlinear = [item for item in items if item.at.startswith(AT_REST)]
        linear = [item for item in items if not item.at.startswith(AT_REST)]
        if linear:
            yield beyond_boundary.finding(
                f"{_farthest(linear)}: the state grows without end",
                "retrain with a parameterization that keeps |lambda| below 1: `memaudit list "
                "reparams` shows them",
                where=where,
            )
        if nonlinear:
            yield beyond_boundary.finding(
                f"{_farthest(nonlinear)}: the state does not stay where it rests",
                "look at the measured curves and at the Lyapunov exponent of a longer run: --probe "
                "spectrum --set spectrum.trajectory=4096",
                where=where,
                severity="warning",
            )


def _farthest(items: list[LayerSpectrum]) -> str:
    import numpy as np

    farthest, *others = items
    out = int((np.abs(farthest.eigenvalues) > 1.0 + ROUNDING).sum())
    return (
        f"{farthest.layer} ({farthest.cell}, {farthest.at}) has {out} of {farthest.count} modes "
        f"beyond the boundary, the largest of modulus {1.0 - farthest.margin:.6g}"
        + _more(others, "have such modes")
    )


@rule("MA203", "direct-parameterization", "note", needs=("spectrum",))
def direct_parameterization(report: Report) -> Iterable[Finding]:
    """The recurrent weights of these layers are stored directly, or through relu or clip.

    With those a finite step of the weights reaches the boundary of stability. Nothing is wrong with
    the model as it is. While it is trained on, nothing keeps its modes from crossing the boundary,
    and by StableSSM the longer the memory, the smaller the steps must be. Other parameterizations,
    such as exp or softplus of the weight, never reach it. Watch the margin while fine-tuning, or
    take a smaller learning rate for these weights.
    """
    for where, items in _by_place(
        report, lambda item: item.parameterization.partition(" (")[0] in REACHING
    ):
        forms = " and ".join(dict.fromkeys(item.parameterization for item in items))
        count = f"{len(items)} recurrences are" if len(items) > 1 else f"{items[0].layer} is"
        command = retrofit_command(report, project=items[0].margin <= 0.0)
        yield direct_parameterization.finding(
            f"{count} parameterized by {forms}; nothing keeps the modes inside, and the smallest "
            f"margin is {items[0].margin:.2g} ({items[0].layer})",
            "watch the margin while fine-tuning, or take a smaller learning rate for them"
            + (f"; or put them into a stable form: {command}" if command else ""),
            where=where,
        )


@rule("MA204", "spectrum-disagrees", "warning", needs=("spectrum",))
def spectrum_disagrees(report: Report) -> Iterable[Finding]:
    """A measured curve outlives the slowest mode of every recurrent layer.

    By the eigenvalues at rest every mode of the recurrent layers is forgotten inside the window,
    and yet a measured curve stays, grows, or falls more than twice as slowly as the slowest mode.
    Eigenvalues describe a nonlinear model near its rest only: an input can carry the state to
    another equilibrium, a cycle or a drift, as some starts do with the stable matrix of the inverse
    approximation paper. A measured rate that is faster is no contradiction, because a mode need not
    be visible in the answer, and a verdict of less than 0.5 confidence contradicts nothing. Believe
    the measurement for inputs of the size that was fed (--set 'amplitudes=[1.0]' for one size), and
    do not call this model stable on account of its spectrum.
    """
    if "spectrum" not in report:
        return
    places: dict[str, list[Prediction]] = {}
    for item in report["spectrum"].predictions:
        if item.complete and _outlives(item, _curve(report, item)):
            places.setdefault(item.where, []).append(item)
    not_causal = {
        a.where
        for a in getattr(report, "assumptions", ())
        if a.name == "causal" and a.holds is False
    }
    for where, items in places.items():
        if not_causal & {"", where}:
            continue
        slow = items[0]
        measured = "; ".join(f"{i.query}: {_curve(report, i).decay.verdict}" for i in items)
        rates = [_curve(report, i).decay.rate for i in items]
        factors = [i.rate / rate for i, rate in zip(items, rates, strict=True) if rate and rate > 0]
        fact = "the spectrum says decay, the measurement does not"
        if len(factors) == len(items):  # it does decay, but more slowly
            factor = max(factors)
            fact = f"the memory falls {factor:.2g} times as slowly as the spectrum says"
        yield spectrum_disagrees.finding(
            f"{fact} ({measured}; slowest mode: rate {slow.rate:.4g}, {slow.layer} at {slow.at})",
            "believe the measurement for inputs of the size that was fed: --query driven --data "
            "FILE feeds yours",
            where=where,
        )


def _curve(report: Report, item: Prediction) -> Any:
    curves = report.layers[item.where] if item.where else report.memory
    return curves[item.query]


def _outlives(item: Prediction, curve: Any) -> bool:
    decay = curve.decay
    if decay.confidence < SURE:
        return False
    if decay.kind == "exponential":
        return decay.rate is not None and FACTOR * decay.rate < item.rate < math.inf
    # A plateau below epsilon of the maximum is no memory, and a slow mode looks like a plateau.
    last = int(curve.lags[-1]) if len(curve.lags) else 0
    inside = item.time_scale * -math.log(curve.epsilon) <= last
    stays = decay.kind == "persistent" and curve.horizon is None
    return inside and (stays or decay.kind == "growing")


#: An exponent below this parts two states less than e-fold in 256 steps: that may be no chaos.
PARTING = 1 / 256


@rule("MA207", "chaotic", "warning", needs=("spectrum",))
def chaotic(report: Report) -> Iterable[Finding]:
    """Along a trajectory under ordinary inputs two states that differ by a little move apart.

    They do so by the factor exp(exponent) a step on average, and the whole interval of that
    exponent lies so far above zero that they part e-fold along the trajectory. Such a model does
    not forget where it came from, yet nothing can be read back from it: rounding in the last digit,
    another batch size or another machine changes its answers after a while. Recurrent weights with
    too large a gain do this. Train with a smaller gain or a penalty on the exponent, and trust no
    memory curve beyond a few multiples of one over the exponent.
    """

    def parts(item: LayerSpectrum) -> bool:
        return item.lyapunov_interval is not None and item.lyapunov_interval[0] > PARTING

    for where, items in _by_place(report, parts):
        worst = max(items, key=lambda item: item.lyapunov or 0.0)
        low, high = worst.lyapunov_interval or (0.0, 0.0)
        yield chaotic.finding(
            f"nearby states of {worst.layer} part along a trajectory: Lyapunov exponent "
            f"{worst.lyapunov:.3g} [{low:.4g}, {high:.4g}] a step",
            "train with a smaller recurrent gain; --dtype float32 and --dtype float64 show how far "
            "answers part",
            where=where,
        )


SpectrumResult.rules = (
    near_boundary,
    beyond_boundary,
    direct_parameterization,
    spectrum_disagrees,
    chaotic,
)
