"""How large gradients are beside the weights that they move, and what to say of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from memaudit.errors import clean
from memaudit.modes import place_of
from memaudit.records import Record, Unbounded
from memaudit.report import Finding, Metric, Result
from memaudit.rules import Rule, retrofit_command, rule
from memaudit.sections import Axis, Column, Figure, Points, Section, Table

if TYPE_CHECKING:
    from memaudit.report import Report

#: Reasons and notes that are shown; the JSON report has them all.
SHOWN = 8

RATIO = Metric(
    "gradient_over_weight",
    over="max",
    better="less",
    help="largest |gradient| / |weight|",
    meaning="A step of gradient descent changes a weight by the learning rate times this share: "
    "the larger it is, the smaller a learning rate must be that keeps the training stable.",
)


@dataclass(frozen=True, slots=True, eq=False)
class ReparamGradient(Record):
    """One reparameterization at the eigenvalues that a layer has.

    `largest` and `median` are of |dLoss/dw| / |w| over the modes that it can reach; `bound` is the
    largest |f'| / f² (discrete: |f'| / (1 - f)²), the gradient scale of StableSSM, Theorem 3.4.
    `unreachable` modes lie outside of its range. `learning_rate` is the largest step of plain
    gradient descent that keeps every mode stable and moves no raw weight by more than its own size.
    `barred` says why it is never recommended: "unstable", "flat" (no gradient beyond a limit),
    "reach" (modes outside of its range) or "zero weight"; "" for a candidate.
    """

    name: str
    time: str
    stable: bool
    largest: Unbounded
    median: Unbounded
    bound: Unbounded
    unreachable: int
    learning_rate: Unbounded
    barred: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class LayerGradient(Record):
    """The gradients of one recurrent layer; `current` names the parameterization that it has.

    `weights` are its raw recurrent weights, `own` the largest |dLoss/dw| / |w| among them as they
    are stored. `recommended` is the reparameterization with the smallest largest ratio among the
    stable ones that reach every mode, "" when there is none; `reasoning` says how it was chosen.
    `decay` is the one of `weights` that `reparams` are about: it makes the sizes of the modes.
    """

    layer: str
    cell: str
    current: str
    weights: tuple[str, ...]
    loss: str
    own: float | None
    reparams: tuple[ReparamGradient, ...]
    recommended: str
    reasoning: str
    note: str = ""
    where: str = ""
    decay: str = ""

    @property
    def place(self) -> str:
        """The layer, behind the part of a host that it stands in; a part of one layer once."""
        return place_of(self.layer, self.where)

    def form(self, name: str) -> ReparamGradient | None:
        """The reparameterization of that name, None where it is unknown."""
        return next((one for one in self.reparams if name and one.name == name), None)


@dataclass(frozen=True, slots=True, eq=False)
class GradientResult(Result):
    """The gradients of every recurrent layer."""

    declared: ClassVar[tuple[Metric, ...]] = (RATIO,)
    rules: ClassVar[tuple[Rule, ...]]
    attribute: ClassVar[str] = "layers"
    absent: ClassVar[tuple[LayerGradient, ...]] = ()

    layers: tuple[LayerGradient, ...]

    def metrics(self) -> Iterator[Metric]:
        for item in self.layers:
            yield RATIO.at(item.own, layer=item.place)

    def sections(self) -> Iterator[Section]:
        if not self.layers:
            return
        forms = dict.fromkeys(clean(g.recommended) for g in self.layers if g.recommended)
        losses = ", ".join(dict.fromkeys(clean(g.loss) for g in self.layers if g.loss))
        compared = [item for item in self.layers if item.reparams]
        text = [
            "How large the gradient of a weight is beside the weight itself, |dLoss/dw| / |w|: a "
            "large ratio makes training jump. Other forms of the same recurrent weight have other "
            "ratios."
        ]
        if losses:
            text.append(
                f"Ratio: the largest |dLoss/dw| / |w|. Loss: {losses}. All weights: that ratio "
                "over every raw recurrent weight, phases and step sizes too."
            )
        if compared:
            text.append(
                "Candidate: yes, or why the form is never recommended, whatever its ratio (flat: "
                "no gradient beyond a limit; reach: modes outside of its range). Scale: the "
                "largest |f'| / f^2, in discrete time |f'| / (1 - f)^2. Safe rate: of plain "
                "gradient descent on the weight of the modes alone."
            )
        known = any(g.reparams or g.current or g.own is not None for g in self.layers)
        yield Section(
            "Gradients",
            line=f"reparameterization to train with: {', '.join(forms) or 'none'}",
            text=(*text, *self._reasons()),
            tables=(
                *([self._table()] if known else []),
                *([_forms_table(compared)] if compared else []),
            ),
            figures=tuple(_forms_figure(item) for item in compared[:SHOWN]),
        )

    def _reasons(self) -> Iterator[str]:
        """Why a form is recommended, and the notes; what many layers share is said once."""
        said: dict[str, list[str]] = {}
        for item in self.layers:
            for words in filter(None, (item.reasoning, item.note)):
                said.setdefault(clean(words, limit=1200), []).append(clean(item.place))
        for words, names in list(said.items())[:SHOWN]:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            yield f"{names[0]}{more}: {words}"
        if len(said) > SHOWN:
            yield f"... and {len(said) - SHOWN} more notes"

    def _table(self) -> Table:
        columns = (
            Column("layer", key=True),
            Column("form", help="the reparameterization that it has"),
            Column("ratio", format=".3g", better="less"),
            Column("recommended"),
            Column("its ratio", format=".3g"),
            Column("safe rate", format=".3g", help="of plain gradient descent"),
            Column("all weights", format=".3g", help="the ratio over all recurrent weights"),
        )
        rows = []
        for item in self.layers:
            has, better = item.form(item.current), item.form(item.recommended)
            safe = better or has
            rows.append(
                (
                    clean(item.place),
                    clean(item.current) or None,
                    None if has is None else has.largest,
                    clean(item.recommended) or None,
                    None if better is None else better.largest,
                    None if safe is None else safe.learning_rate,
                    item.own,
                )
            )
        return Table(columns, tuple(rows), title="Largest ratio of gradient and weight")


def _forms_table(items: list[LayerGradient]) -> Table:
    """Every form at the eigenvalues of every layer."""
    columns = (
        Column("recurrence", key=True),
        Column("form", key=True),
        Column("candidate"),
        Column("is"),
        Column("ratio", format=".3g", better="less"),
        Column("median", format=".3g", brief=False),
        Column("scale", format=".3g", brief=False),
        Column("out of reach", help="modes outside of its range"),
        Column("safe rate", format=".3g"),
    )
    rows = tuple(
        (
            clean(item.place),
            clean(one.name),
            clean(one.barred) or ("yes" if one.stable else "unstable"),
            {item.recommended: "recommended", item.current: "current"}.get(one.name),
            one.largest,
            one.median,
            one.bound,
            one.unreachable,
            one.learning_rate,
        )
        for item in items
        for one in item.reparams
    )
    return Table(columns, rows, title="Forms at the eigenvalues of a layer")


def _forms_figure(item: LayerGradient) -> Figure:
    """Median, largest ratio and scale of every form, smaller is better."""
    import numpy as np

    series = []
    for field, name in (("median", "median"), ("largest", "largest"), ("bound", "scale")):
        drawn = [
            (place, value, clean(one.name))
            for place, one in enumerate(item.reparams)
            for value in [float(getattr(one, field))]
            if 0 < value < math.inf
        ]
        if drawn:
            places, values, names = zip(*drawn, strict=True)
            series.append(Points(name, np.asarray(values), np.asarray(places, float), names))
    return Figure(
        title=f"Forms of the recurrent weight, {clean(item.place)}",
        x=Axis("|dLoss/dw| / |w|", log=True),
        y=Axis("form, in the order of the table"),
        series=tuple(series),
        caption="Ratios at the eigenvalues of the layer; farther left is safer.",
    )


# Rules

#: Times the median from which on modes of one layer cannot share a learning rate.
SPREAD = 100.0
#: Times the ratio of the recommended form from which on a change is worth its trouble.
WORSE = 10.0
#: By so much the rate of all weights has to be smaller than that of one to be named.
APART = 0.99


@rule("MA206", "gradient-range", "warning", needs=("gradient",))
def gradient_range(report: Report) -> Iterable[Finding]:
    """All raw weights of a recurrent layer share one learning rate.

    So what counts is the gradient beside the weight that it moves. Here the largest ratio
    |dLoss/dw| / |w| of the parameterization that the layer has is more than 100 times its median,
    or more than 10 times that of the recommended reparameterization at the same eigenvalues: a step
    that suits most modes throws a few of them far away, often the slow ones that hold the memory.
    Fine-tune with the recommended form, or with a learning rate for that weight below the safe one
    in the report, and for all recurrent weights of the layer below the smaller one, if the finding
    has two; AdamW, which steps by about one learning rate whatever the gradient, needs one far
    below the smallest weight. The numbers depend on the loss: give your own batch to see those of
    your task.
    """
    for item in report.gradient:
        current, better = item.form(item.current), item.form(item.recommended)
        if current is None:
            continue
        reasons = []
        if current.largest > SPREAD * current.median:
            reasons.append(f"beside a median of {current.median:.3g}")
        if better is not None and current.largest > WORSE * better.largest:
            reasons.append(f"where {better.name} has {better.largest:.3g} at the same eigenvalues")
        if not reasons:
            continue
        rate = current.learning_rate
        weight = clean(item.decay) or "the weight of its modes"
        advice = f"keep gradient descent on {weight} below {rate:.2g}"
        if item.own and 1.0 / item.own < APART * rate:
            advice += f", and on all its recurrent weights below {1.0 / item.own:.2g}"
        command = retrofit_command(report, reparam=clean(item.recommended))
        if item.recommended and item.recommended != item.current and command:
            advice = f"train it with {clean(item.recommended)} ({command}), or {advice}"
        else:
            advice += "; --probe gradient --verbose compares the forms"
        yield gradient_range.finding(
            f"the largest gradient over weight of {clean(item.current)} is "
            f"{current.largest:.3g}, {' and '.join(reasons)}",
            advice,
            where=f"{item.where}: {item.layer}" if item.where else item.layer,
        )


GradientResult.rules = (gradient_range,)
