"""How much the answers of a model change when its weights move, and what to say of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

from memaudit.errors import clean
from memaudit.records import Record, Unbounded, UnboundedFloats
from memaudit.report import Metric, Result
from memaudit.sections import (
    MOST_FIGURES,
    Cell,
    Column,
    Figure,
    Line,
    Mark,
    Section,
    Table,
    perturbation_figure,
)

if TYPE_CHECKING:
    import numpy as np

#: The criteria of a radius, and the word for what ends there.
BOUNDARY = "no mode reaches the boundary"
SIZE = "the error stays below the size of the answers"
UNTIL = {BOUNDARY: "boundary", SIZE: "error"}
#: E(beta) stands in the table at so many betas, from small to large.
SHOWN_BETAS = 3
#: Errors so many times the size of the answers are not drawn: the rest would be squeezed.
ABOVE = 100.0

RADIUS = Metric(
    "radius",
    better="more",
    help="how far the weights may move",
    meaning="The largest move of the weights, beta, at which the model is still stable, or still "
    "answers as it did; the column `until` says which of them ends there. Moves are found by "
    "random draws and gradient ascent, so the true radius is at most that. Compare it with one "
    "step of the optimizer, about one learning rate, and with the rounding of a number format.",
)
GROUP_RADIUS = Metric("radius/*", better="more", help="how far the weights of a group may move")
RADIUS_BEYOND = Metric("radius_beyond", help="the largest move, where none breaks the model")
TOLERANCE_RADIUS = Metric(
    "tolerance_radius",
    better="more",
    help="how far, until E(beta) is over its tolerance",
    meaning="The largest beta with E(beta) <= (1 + tol) E(0) + atol times the size of the answers; "
    "--set stability.tol= and stability.atol= change the tolerance.",
)
#: Words of the table.
TERMS = {
    "beta": "The size of a move of the weights, measured as --set stability.ball= says: the "
    "spectral norm, the Frobenius norm or the largest change of a weight.",
    "e(beta)": "The largest error of the answers over the moves of the weights up to the size "
    "beta that were tried, as a share of the answers: a lower bound of the true one.",
    "ball": "Which moves of the weights count as equally large: spectral, frobenius or max-abs.",
}


@dataclass(frozen=True, slots=True, eq=False)
class Radius(Record):
    """How far the weights may move: the largest beta at which a criterion still holds.

    `criterion` says which, in words. `value` is infinite when no move within reach breaks it,
    `interval` spans what different seeds found: each found a move that breaks the criterion, so
    the true radius is at most the lower end. `closed_form` is the exact one, None when there is
    no formula; `formula` names it.
    """

    criterion: str
    value: Unbounded
    interval: tuple[Unbounded, Unbounded]
    closed_form: Unbounded | None = None
    formula: str = ""

    @property
    def until(self) -> str:
        """What ends there, in a word where it has one."""
        return UNTIL.get(self.criterion, clean(self.criterion))

    def __str__(self) -> str:
        """The radius, with its interval where the seeds do not agree."""
        low, high = self.interval
        spread = math.isfinite(low) and high > 1.02 * low
        return _size(self.value) + (f" [{_size(low)}, {_size(high)}]" if spread else "")


@dataclass(frozen=True, slots=True, eq=False)
class PerturbationCurve(Record):
    """E(beta) of one group of weights: the largest error that was found within beta.

    `errors` is the running maximum over smaller betas of what random draws (`random`) and
    gradient ascent (`ascent`, empty when there was none) found: a lower bound of the supremum.
    Errors that are not finite are infinite.
    """

    group: str
    ball: str
    norm: str
    betas: UnboundedFloats
    errors: UnboundedFloats
    random: UnboundedFloats
    ascent: UnboundedFloats
    #: The largest beta at which no mode reaches the boundary, or no error the size of the answers.
    radius: Radius
    #: The largest beta at which E(beta) <= (1 + tol) E(0) + atol.
    tolerance_radius: Radius
    weights: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        import numpy as np

        rows = [self.errors, self.random, *([self.ascent] if len(self.ascent) else [])]
        if any(len(row) != len(self.betas) for row in rows):
            raise ValueError("betas and errors differ in count")
        sizes = self.betas
        if not np.isfinite(sizes).all() or (sizes <= 0).any() or (np.diff(sizes) < 0).any():
            raise ValueError("the betas are no rising sizes")


@dataclass(frozen=True, slots=True, eq=False)
class StabilityResult(Result):
    """E(beta) of every group of weights; the first curve is the one that the report is about.

    `reference` says what the error is measured against, `scale` is the norm of that reference,
    `horizon` the steps of the inputs. `others` are the parts of a host that stand farther from
    the edge than this one.
    """

    curves: tuple[PerturbationCurve, ...]
    reference: str
    scale: float
    horizon: int
    draws: int
    seeds: int
    #: How the copies were evaluated: batched cells, vmap, or one after the other.
    execution: str
    note: str = ""
    where: str = ""
    others: tuple[StabilityResult, ...] = ()

    declared: ClassVar[tuple[Metric, ...]] = (
        RADIUS,
        GROUP_RADIUS,
        RADIUS_BEYOND,
        TOLERANCE_RADIUS,
    )
    terms: ClassVar[Mapping[str, str]] = TERMS

    @property
    def first(self) -> PerturbationCurve:
        """The curve that the report is about."""
        return self.curves[0]

    @property
    def betas(self) -> np.ndarray:
        """The sizes of the moves."""
        return self.first.betas

    @property
    def errors(self) -> np.ndarray:
        """E(beta) at every size."""
        return self.first.errors

    @property
    def radius(self) -> float:
        """The stability radius; infinite when no move within reach breaks the model."""
        return self.first.radius.value

    @property
    def interval(self) -> tuple[float, float]:
        """The radii that different seeds found."""
        return self.first.radius.interval

    @property
    def ball(self) -> str:
        """How the size of a move is measured."""
        return self.first.ball

    @property
    def norm(self) -> str:
        """How the size of an error is measured."""
        return self.first.norm

    def __post_init__(self) -> None:
        if not self.curves or not all(len(curve.betas) for curve in self.curves):
            raise ValueError("E(beta) has no numbers")
        if self.scale < 0:
            raise ValueError("the scale, a norm, is negative")

    @classmethod
    def joined(cls, parts: Mapping[str, Self]) -> Self:
        """The part of a host that stands nearest to the edge, with the other parts behind it."""
        placed = [replace(own, where=part) for part, own in parts.items()]
        near, *rest = sorted(placed, key=lambda part: part.radius)
        return replace(near, others=tuple(rest))

    @property
    def parts(self) -> tuple[StabilityResult, ...]:
        """The nearest to the edge first, then the other parts of a host."""
        return (self, *self.others)

    def metrics(self) -> Iterator[Metric]:
        """The smallest radii of the parts of a host, and those of every group of weights."""
        firsts = [part.first for part in self.parts]
        near, value, beyond = _nearest(firsts, "radius")
        yield RADIUS.at(value, holder=near.group, beyond=beyond)
        if beyond is not None:
            yield RADIUS_BEYOND.at(beyond)
        _, value, beyond = _nearest(firsts, "tolerance_radius")
        yield TOLERANCE_RADIUS.at(value, beyond=beyond)
        for curve in self.curves:
            alike = [
                c
                for part in self.parts
                for c in part.curves
                if (c.group, c.ball) == (curve.group, curve.ball)
            ]
            _, value, beyond = _nearest(alike, "radius")
            yield GROUP_RADIUS.at(value, curve.group, beyond=beyond)

    def sections(self) -> Iterator[Section]:
        first = self.first
        weights = f"{clean(first.group)} weights, {clean(first.ball)} ball"
        ascent = " and gradient ascent" if len(first.ascent) else ""
        yield Section(
            "Stability",
            line=f"radius {first.radius} until {first.radius.until}, "
            f"{first.tolerance_radius} until tolerance ({weights})",
            text=(
                "How much the answers change when weights move by at most beta: a lower bound of "
                "the worst case. The radius is the largest move until which no mode reaches the "
                "boundary, or, where the weights alone do not decide the modes, the error stays "
                f"below the size of the answers; {self.seeds} seeds.",
                f"Tolerance: {clean(first.tolerance_radius.criterion)}.",
                f"E in the {clean(first.norm)} norm, as a share of the answers, against "
                f"{clean(self.reference)} of {self.horizon} steps; {self.draws} draws{ascent}.",
                *dict.fromkeys(clean(part.note) for part in self.parts if part.note),
            ),
            tables=(self._table(),),
            figures=tuple(f for part in self.parts[:MOST_FIGURES] for f in part._figures()),
        )

    def _table(self) -> Table:
        """One row per part, group of weights and ball: radii, and E(beta) as a share."""
        import numpy as np

        betas = self.betas
        shown = sorted({round(k) for k in np.linspace(0, len(betas) - 1, SHOWN_BETAS + 1)[1:]})
        columns = (
            Column("part", key=True),
            Column("weights", key=True),
            Column("ball", key=True),
            Column("radius", format=".3g", better="more", help="how far these weights may move"),
            Column("seeds", brief=False, help="radii that different seeds found"),
            Column("until", help="what ends at the radius"),
            Column("exact", format=".3g", help="the radius in closed form"),
            Column("tolerance", format=".3g", better="more", help="the tolerance radius"),
            *(
                Column(f"E({betas[k]:.3g})", format=".2%", brief=False, better="less")
                for k in shown
            ),
        )
        rows = tuple(part._row(c, shown) for part in self.parts for c in part.curves)
        start = 0 if any(part.where for part in self.parts) else 1
        return Table(
            columns[start:], tuple(row[start:] for row in rows), title="How far weights may move"
        )

    def _row(self, curve: PerturbationCurve, shown: list[int]) -> tuple[Cell, ...]:
        radius = curve.radius
        low, high = radius.interval
        errors = [float(curve.errors[k]) if k < len(curve.errors) else None for k in shown]
        return (
            clean(self.where),
            clean(curve.group),
            clean(curve.ball),
            radius.value,
            f"{_size(low)} to {_size(high)}" if high > low else None,
            radius.until,
            radius.closed_form,
            curve.tolerance_radius.value,
            *(None if e is None or not self.scale else e / self.scale for e in errors),
        )

    def _figures(self) -> Iterator[Figure]:
        """One for every ball: a line per group, radii upright, the size of the answers across."""
        import numpy as np

        for ball in dict.fromkeys(curve.ball for curve in self.curves):
            curves = [curve for curve in self.curves if curve.ball == ball]
            top = ABOVE * self.scale if self.scale > 0 else math.inf
            marks = [
                Mark(f"{clean(c.group)} radius", x=c.radius.value, series=clean(c.group))
                for c in curves
                if 0 < c.radius.value < math.inf
            ]
            if self.scale > 0:
                marks.append(Mark("size of the answers", y=self.scale))
            drawn = [(c, np.isfinite(c.errors) & (c.errors <= top)) for c in curves]
            yield perturbation_figure(
                ball,
                self.norm,
                self.where,
                series=tuple(Line(clean(c.group), c.betas[at], c.errors[at]) for c, at in drawn),
                marks=tuple(marks),
                caption="Upright: radii. Across: the size of the answers.",
            )


def _nearest(
    curves: list[PerturbationCurve], name: str
) -> tuple[PerturbationCurve, float, float | None]:
    """The curve with the smallest radius, that, and the largest move where none broke the model.

    Of those that nothing broke it is the one that was moved least: no more is known of them all.
    """
    near = min(curves, key=lambda c: (getattr(c, name).value, float(c.betas[-1])))
    value = float(getattr(near, name).value)
    return near, value, float(near.betas[-1]) if math.isinf(value) else None


def _size(value: float) -> str:
    return "infinite" if math.isinf(value) else f"{value:.3g}"
