"""What number formats do to the recurrent weights and the memory, and what to say of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Self

from memaudit.errors import clean
from memaudit.records import Record, Unbounded
from memaudit.report import Finding, Metric, Result
from memaudit.rules import Rule, rule
from memaudit.sections import (
    MOST_FIGURES,
    Cell,
    Column,
    Figure,
    Points,
    Section,
    Table,
    perturbation_figure,
)

if TYPE_CHECKING:
    from memaudit.report import Report

#: A horizon or a rate may change by this factor.
FACTOR = 2.0
#: The share of the answers up to which an error does not matter, as in the tolerance radius.
TOLERATED = 0.1
#: Kinds of decay that say how fast it is.
DECAYING = ("finite", "exponential", "polynomial")
#: Weights, and notes, that are named; the JSON report has them all.
NAMED = 4

ERROR = Metric(
    "precision/*/relative_error",
    better="less",
    help="error in a number format",
    meaning="The change of the answers when the weights are stored in that format, as a share of "
    "the answers.",
)
REACHED = Metric(
    "precision/*/reached",
    better="less",
    help="modes that it moves to the boundary",
    meaning="Modes that were stable, and are on the unit circle or beyond it after rounding: they "
    "never fade. 0.999 in bf16 is 1.",
)


@dataclass(frozen=True, slots=True, eq=False)
class RoundedLayer(Record):
    """One recurrent layer before and after its weights were rounded.

    Margins are min(1 - |lambda|), None where the layer has no spectrum. `reached` counts modes
    that were stable and are now on the boundary or beyond it.
    """

    layer: str
    margin_before: float | None
    margin_after: float | None
    reached: int
    #: The largest change of an eigenvalue.
    shift: float | None

    @property
    def reached_text(self) -> str:
        """How many modes got there; margins say nothing where others were there before."""
        before, after = self.margin_before, self.margin_after
        inside = before is not None and before > 0 and after is not None
        more = "" if inside else " more"
        many = f"1{more} mode reaches" if self.reached == 1 else f"{self.reached}{more} modes reach"
        margins = f", margin {before:.2g} to {after:.2g}" if inside else ""
        return f"{many} the boundary{margins}"


@dataclass(frozen=True, slots=True, eq=False)
class RoundedMemory(Record):
    """The memory function under one query before and after the recurrent weights were rounded."""

    query: str
    kind_before: str
    kind_after: str
    rate_before: float | None
    rate_after: float | None
    horizon_before: int | None
    horizon_after: int | None
    #: The largest change of the curve, as a share of its maximum.
    change: float

    @property
    def factor(self) -> float:
        """By how much horizon or rate changed, up or down; 1 where neither can be compared."""
        rates = _ratio(self.rate_before, self.rate_after, least=0.0)
        return max(_ratio(self.horizon_before, self.horizon_after, least=1.0), rates)

    @property
    def change_text(self) -> str:
        """What changed by more than is tolerated."""
        before, after = self.horizon_before, self.horizon_after
        if _ratio(before, after, least=1.0) > FACTOR:
            return f"the horizon under {self.query} goes from {before} to {after}"
        rates = f"from {self.rate_before:.2g} to {self.rate_after:.2g}"
        return f"the rate under {self.query} goes {rates}"


def _ratio(before: float | None, after: float | None, *, least: float) -> float:
    if before is None or after is None or min(before, after) < 0:
        return 1.0
    low, high = sorted((max(before, least), max(after, least)))
    if low == high:
        return 1.0
    return high / low if low > 0 else math.inf


@dataclass(frozen=True, slots=True)
class Failure:
    """One thing that a format breaks; `layer` is empty where it is the model as a whole.

    `short` is for a cell of a table, `words` for a sentence.
    """

    severity: str
    layer: str
    short: str
    words: str


@dataclass(frozen=True, slots=True, eq=False)
class Rounding(Record):
    """One number format as a move of the recurrent weights.

    `betas` is the size of the move by ball, on the axis of E(beta); `error` what it does to the
    answers, in the norm of the stability probe, and `relative` that as a share of the answers.
    `memory` is empty when the rounded model was not measured; `note` says why.
    """

    format: str
    betas: dict[str, Unbounded]
    error: Unbounded | None
    relative: Unbounded | None
    layers: tuple[RoundedLayer, ...] = ()
    memory: tuple[RoundedMemory, ...] = ()
    note: str = ""

    @property
    def overflows(self) -> bool:
        """Whether a finite weight has no finite number in the format."""
        return any(math.isinf(beta) for beta in self.betas.values())

    @property
    def verdict(self) -> str:
        """The worst failure in a word or two."""
        broken = self.failures()
        if broken:
            return broken[0].short
        if not self.layers and not self.memory:
            return "not measured"
        before = [layer.margin_before for layer in self.layers]
        return "no worse" if any(m is not None and m <= 0 for m in before) else "safe"

    def failures(self) -> tuple[Failure, ...]:
        """Everything that the format breaks, errors first."""
        found = [*self._overflow(), *self._modes(), *self._memory(), *self._answers()]
        return tuple(sorted(found, key=lambda failure: failure.severity != "error"))

    def _overflow(self) -> Iterator[Failure]:
        if self.overflows:
            note = self.note.partition(";")[0] or "numbers overflow"
            yield Failure("error", "", "overflow", note)

    def _modes(self) -> Iterator[Failure]:
        for layer in self.layers:
            if layer.reached:
                yield Failure("error", layer.layer, "boundary", layer.reached_text)

    def _memory(self) -> Iterator[Failure]:
        grown = [m for m in self.memory if m.kind_after == "growing" != m.kind_before]
        for memory in grown:
            yield Failure("error", "", "grows", f"the memory under {memory.query} grows")
        if grown or not self.memory:
            return
        for memory in self.memory:
            if memory.kind_after == "persistent" and memory.kind_before in DECAYING:
                words = f"the memory under {memory.query} no longer decays"
                yield Failure("warning", "", "no decay", words)
                return
        worst = max(self.memory, key=lambda memory: memory.factor)
        if worst.factor > FACTOR:
            yield Failure("warning", "", "changes", worst.change_text)

    def _answers(self) -> Iterator[Failure]:
        share = self.relative
        if share is not None and TOLERATED < share < math.inf:
            words = f"the answers change by {100 * share:.0f} % of their size"
            yield Failure("warning", "", "answers off", words)


@dataclass(frozen=True, slots=True, eq=False)
class PrecisionResult(Result):
    """What every common number format does; `weights` are those that were rounded.

    `balls` are those in which the stability probe measured E(beta), where it ran before, and
    `tolerance` is the tolerance radius that it found for the same weights in each.
    """

    declared: ClassVar[tuple[Metric, ...]] = (ERROR, REACHED)
    rules: ClassVar[tuple[Rule, ...]]

    roundings: tuple[Rounding, ...]
    weights: tuple[str, ...]
    norm: str
    note: str = ""
    where: str = ""
    others: tuple[PrecisionResult, ...] = ()
    balls: tuple[str, ...] = ("spectral",)
    tolerance: dict[str, Unbounded] = field(default_factory=dict)

    @classmethod
    def joined(cls, parts: Mapping[str, Self]) -> Self:
        """The first part of a host, with the other parts behind it."""
        first, *rest = (replace(own, where=part) for part, own in parts.items())
        return replace(first, others=tuple(rest))

    @property
    def parts(self) -> tuple[PrecisionResult, ...]:
        """The first part of a host, then the others."""
        return (self, *self.others)

    def by_format(self) -> dict[str, list[tuple[str, Rounding]]]:
        """Format → the parts of a host and what it does to them."""
        found: dict[str, list[tuple[str, Rounding]]] = {}
        for part in self.parts:
            for rounding in part.roundings:
                found.setdefault(rounding.format, []).append((part.where, rounding))
        return found

    def metrics(self) -> Iterator[Metric]:
        """Every format, as bad as it is for the part of a host that it is worst for."""
        for name, placed in self.by_format().items():
            errors = {where or "the model": rounding.relative for where, rounding in placed}
            known = [share for share in errors.values() if share is not None]
            if known:
                unknown = tuple(where for where, share in errors.items() if share is None)
                yield ERROR.at(max(known), name, unknown=unknown)
            layers = [layer for _, rounding in placed for layer in rounding.layers]
            if layers:
                # A layer that lost its eigenvalues, or was not measured, may have reached it, too.
                lost = [
                    *(x.layer for x in layers if x.margin_before is None or x.margin_after is None),
                    *(where or "the model" for where, rounding in placed if not rounding.layers),
                ]
                count = sum(layer.reached for layer in layers)
                yield REACHED.at(count, name, unknown=tuple(lost))

    def sections(self) -> Iterator[Section]:
        verdicts: dict[str, list[str]] = {}
        for name, placed in self.by_format().items():
            verdicts.setdefault(_worst(placed)[1].verdict, []).append(clean(name))
        yield Section(
            "Precision",
            line="; ".join(f"{verdict}: {', '.join(same)}" for verdict, same in verdicts.items()),
            text=(*([self._legend()] if verdicts else []), *self._notes()),
            tables=(self._table(),) if verdicts else (),
            figures=tuple(f for part in self.parts[:MOST_FIGURES] for f in part._figures()),
        )

    def _legend(self) -> str:
        names = [clean(name, limit=60) for part in self.parts for name in part.weights]
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        return (
            f"Rounded: {', '.join(names[:NAMED])}{more}. A format is a move of these weights, with "
            f"its size in two balls; error ({clean(self.norm)}) as a share of the answers; "
            "smallest margin after it; horizon under the query that changes most. Safe: the error "
            f"is at most {100 * TOLERATED:.0f} %, no mode reaches the boundary, and horizons and "
            f"rates change by a factor of {FACTOR:.0f} at most. No worse: the same, of modes that "
            "are on the boundary already."
        )

    def _notes(self) -> Iterator[str]:
        noted = [(part.where, part.worst_and_actual()) for part in self.parts]
        noted = [(where, note) for where, note in noted if note]
        noted += [(part.where, part.note) for part in self.parts if part.note]
        noted += [
            (f"{part.where} {rounding.format}".strip(), rounding.note)
            for part in self.parts
            for rounding in part.roundings
            if rounding.note
        ]
        for where, note in noted[:NAMED]:
            yield f"{clean(where)}: {clean(note)}" if where else clean(note)
        if len(noted) > NAMED:
            yield f"... and {len(noted) - NAMED} more notes"

    def worst_and_actual(self) -> str:
        """Which formats are safe though they move the weights beyond the tolerance radius."""
        safe = [r for r in self.roundings if r.verdict in ("safe", "no worse")]
        for ball, radius in self.tolerance.items():
            far = [r for r in safe if r.betas.get(ball, 0.0) > radius]
            if far:
                names = ", ".join(clean(r.format) for r in far)
                size = max(r.betas[ball] for r in far)
                error = max(r.relative or 0.0 for r in far)
                return (
                    f"{names}: a move of up to {size:.3g} ({clean(ball)}), beyond the tolerance "
                    f"radius of {radius:.3g}. That radius is the worst case of all moves of a "
                    f"size; this rounding changes the answers by {100 * error:.2g} % at most"
                )
        return ""

    def _table(self) -> Table:
        """One row per format; of a host the part that it does most to."""
        columns = (
            Column("format", key=True),
            Column("max-abs", format=".1e", brief=False, help="the largest change of a weight"),
            Column("spectral", format=".1e", brief=False, help="the change in the spectral norm"),
            Column("error", format=".2%", better="less", help="as a share of the answers"),
            Column("margin", format=".1e", better="more", help="smallest margin after it"),
            Column("horizon before"),
            Column("horizon after"),
            Column("verdict"),
            Column("part"),
        )
        rows = tuple(
            (clean(name), *_cells(worst), worst.verdict, clean(where) or None)
            for name, placed in self.by_format().items()
            for where, worst in [_worst(placed)]
        )
        last = len(columns) if self.others else len(columns) - 1
        title = "Number formats of the recurrent weights"
        return Table(columns[:last], tuple(row[:last] for row in rows), title=title)

    def _figures(self) -> Iterator[Figure]:
        """The formats as points on the axes of E(beta); those that change nothing have no place."""
        import numpy as np

        for ball in self.balls:
            drawn = [
                (beta, rounding.error, clean(rounding.format))
                for rounding in self.roundings
                for beta in [rounding.betas.get(ball, 0.0)]
                if 0 < beta < math.inf and 0 < (rounding.error or 0.0) < math.inf
            ]
            if drawn:
                betas, errors, names = zip(*drawn, strict=True)
                points = Points("number formats", np.asarray(betas), np.asarray(errors), names)
                yield perturbation_figure(
                    ball,
                    self.norm,
                    self.where,
                    series=(points,),
                    caption="Points: number formats.",
                )


def _worst(placed: list[tuple[str, Rounding]]) -> tuple[str, Rounding]:
    """The part that a format does most to, and what it does there."""

    def severity(pair: tuple[str, Rounding]) -> tuple[int, float]:
        severities = [failure.severity for failure in pair[1].failures()]
        grave = 2 if "error" in severities else 1 if severities else 0
        return grave, pair[1].relative or 0.0

    return max(placed, key=severity)


def _cells(rounding: Rounding) -> tuple[Cell, ...]:
    margins = [m for layer in rounding.layers if (m := layer.margin_after) is not None]
    most = max(rounding.memory, key=lambda m: (m.factor, m.change), default=None)
    return (
        rounding.betas.get("max-abs"),
        rounding.betas.get("spectral"),
        rounding.relative,
        min(margins, default=None),
        None if most is None else most.horizon_before,
        None if most is None else most.horizon_after,
    )


# Rules


@rule("MA205", "format-unsafe", "error", milder="warning", needs=("precision",))
def format_unsafe(report: Report) -> Iterable[Finding]:
    """A number format is a move of the weights.

    A recurrence applies its weights at every step, so a rounding that no other layer notices adds
    up: 0.999 stored in bf16 is exactly 1, and a mode that forgot within a thousand steps never
    forgets again. It is an error when a mode that was stable is on the boundary or beyond it after
    the rounding, when the memory grows, or when a weight overflows; it is a warning when a horizon
    or a rate changes by more than a factor of two, or the answers by more than a tenth of their
    size. Keep these weights in float32 when the model is cast or quantized, or store them in a form
    such as the logarithm of the decay rate, in which a rounding changes the distance to the
    boundary by a small share of itself.
    """
    if "precision" not in report:
        return
    for part in report["precision"].parts:
        names = ", ".join(clean(name, limit=60) for name in part.weights[: NAMED - 1])
        more = len(part.weights) - NAMED + 1
        weights = f"{names} and {more} more weights" if more > 0 else names or "these weights"
        for layer, broken in _by_layer(part).items():
            alike: dict[str, list[str]] = {}
            for name, failure in broken:
                alike.setdefault(failure.words, []).append(name)
            formats = "; ".join(f"{', '.join(names)}: {words}" for words, names in alike.items())
            grave = any(failure.severity == "error" for _, failure in broken)
            beyond = part.worst_and_actual()
            others = f". Safe all the same are {beyond}" if beyond else ""
            yield format_unsafe.finding(
                f"formats that are not safe for the recurrent weights: {formats}{others}",
                f"keep {weights} in float32 when the model is cast or quantized; --probe precision "
                "--verbose shows what every format breaks",
                where=": ".join(filter(None, (part.where, layer))),
                severity="error" if grave else "warning",
            )


def _by_layer(part: PrecisionResult) -> dict[str, list[tuple[str, Failure]]]:
    """Layer → formats and the worst that they break there; what the whole model shows once.

    A model of one layer shows what this layer does. In a model of several, a format that breaks
    one of them is not named again for the whole.
    """
    every = {layer.layer for rounding in part.roundings for layer in rounding.layers}
    only = every.pop() if len(every) == 1 else ""
    found: dict[str, list[tuple[str, Failure]]] = {}
    for rounding in part.roundings:
        layers = {failure.layer: failure for failure in reversed(rounding.failures())}
        whole = layers.pop("", None)
        if whole is not None and not layers:
            own = rounding.layers
            layers = {own[0].layer if len(own) == 1 else only: whole}
        for layer, failure in layers.items():
            found.setdefault(layer, []).append((clean(rounding.format), failure))
    return found


PrecisionResult.rules = (format_unsafe,)
