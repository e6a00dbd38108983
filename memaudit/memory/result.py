"""Memory curves of a model and the assumptions behind them: numbers, and what to show of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Self

from memaudit.errors import clean
from memaudit.interfaces import Status
from memaudit.memory.curve import (
    KINDS,
    RULE_OF_THREE,
    TERMS,
    UNIT_NOISE,
    UNREAD,
    Curve,
    HorizonStatus,
    informative,
    longest_curves,
    longest_layers,
)
from memaudit.memory.rules import NOT_POSSIBLE, OF_ASSUMPTIONS, OF_CURVES, wider_window
from memaudit.records import Record
from memaudit.report import Metric, Result
from memaudit.rules import Rule
from memaudit.sections import Axis, Band, Cell, Column, Figure, Line, Mark, Points, Section, Table

if TYPE_CHECKING:
    from memaudit.interfaces import AbstractSubject, Setting
    from memaudit.numerics.verdict import Decay

#: The query that the headline and the numbers of the model come from, where it was asked.
IN_USE = "driven"
#: Memory at worst this many times longer than in use asks for a reason.
FAR_APART = 10
#: What a query feeds that a model in use does not get.
FED = {
    "heaviside": "a constant input holds the state",
    "impulse": "zero input leaves the state as it is",
    "reversed": "zero input leaves the state as it is",
}
#: Names of trials, such as repeated words, that are listed.
MOST_TRIALS = 8


@dataclass(frozen=True, slots=True, eq=False)
class Assumption(Record):
    """One property that the theory asks for, as measured: residual against tolerance.

    `holds` is None when it could not be measured; the note says why.
    """

    name: str
    holds: bool | None
    residual: float | None
    tolerance: float | None
    note: str = ""
    where: str = ""

    @property
    def verdict(self) -> str:
        """Whether it holds, in a word."""
        return {True: "holds", False: "fails", None: "not measured"}[self.holds]


HOLDS = Metric("assumptions/*", over="min", help="1 where an assumption holds, 0 where not")
#: What every assumption says; H(u) is the answer to u, and A(u) = H(u) - H(0).
MEANINGS = {
    "responsive": "The answer depends on the input at all.",
    "deterministic": "Two calls with the same input give the same answer.",
    "rows-independent": "A sequence gets the same answer alone and in a batch with others.",
    "linear": "Answers add up, A(8u - 3v) = 8 A(u) - 3 A(v). Then the supremum is exact.",
    "continuous": "A small change of the input makes a small change of the answer.",
    "bounded": "The answer does not grow faster than the input.",
    "time-homogeneous": "The same input gives the same answer whenever it comes.",
    "causal": "What is fed later does not change an earlier answer.",
    "regular": "Inputs that vanish make answers that vanish.",
    "residual": "By how much an assumption is missed, as a share of the answers; it holds where "
    "that is at most the tolerance.",
}


@dataclass(frozen=True, slots=True, eq=False)
class AssumptionsResult(Result):
    """Which assumptions of the theory the model, or every part of a host, meets."""

    declared: ClassVar[tuple[Metric, ...]] = (HOLDS,)
    terms: ClassVar[Mapping[str, str]] = MEANINGS
    rules: ClassVar[tuple[Rule, ...]] = OF_ASSUMPTIONS
    attribute: ClassVar[str] = "items"
    absent: ClassVar[tuple[Assumption, ...]] = ()

    items: tuple[Assumption, ...]

    def holds(self, name: str) -> bool:
        """Whether one was measured and holds everywhere."""
        found = [item.holds for item in self.items if item.name == name]
        return bool(found) and all(found)

    def metrics(self) -> Iterator[Metric]:
        for name in dict.fromkeys(item.name for item in self.items):
            same = [item for item in self.items if item.name == name]
            known = [item.holds for item in same if item.holds is not None]
            unknown = tuple(item.where or "the model" for item in same if item.holds is None)
            yield HOLDS.at(all(known) if known else None, name, unknown=unknown)

    def sections(self) -> Iterator[Section]:
        if not self.items:
            return
        fails = dict.fromkeys(clean(item.name) for item in self.items if item.holds is False)
        columns = (
            Column("assumption", key=True),
            Column("part", key=True),
            Column("verdict"),
            Column("residual", format=".3g", better="less"),
            Column("tolerance", format=".3g"),
            Column("note", brief=False),
        )
        rows = [
            (
                clean(item.name),
                clean(item.where),
                item.verdict,
                item.residual,
                item.tolerance,
                clean(item.note),
            )
            for item in self.items
        ]
        yield Section(
            "Assumptions",
            line=f"fails: {', '.join(fails)}" if fails else "none is seen to fail",
            text=(
                "Properties that the theory asks for, measured: a residual against a tolerance.",
            ),
            tables=(_used(columns, rows),),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Facts(Record):
    """What is known of a model when the queries are run.

    `inputs` and `outputs` are the numbers of a step and of its answer, `rounding` the relative
    rounding of an answer, `tokens` whether it takes token ids, too.
    """

    causal: bool
    linear: bool
    outputs: int
    rounding: float
    inputs: int = 1
    tokens: bool = False


HORIZON = Metric(
    "horizon",
    better="more",
    within="horizon",
    whole=True,
    help="lags until memory is gone: in use (driven), else the fewest of the queries",
    meaning="The lag from which the memory curve stays below epsilon (0.001 unless --set epsilon= "
    "is given) of its largest value: inputs older than that hardly change the answer. > N says "
    "that the memory outlasts the N lags that were measured; --horizon looks further. ? says that "
    "the floor hides it.",
)
HALF_LIFE = Metric(
    "half_life",
    better="more",
    within="horizon",
    help="lags until memory has halved: in use (driven), else the fewest of the queries",
    meaning="Counted from the largest value of the memory curve. It tells of the bulk of the "
    "memory, the horizon of its last traces.",
)
#: What the model has one of: that in use, else that of the query under which it remembers least.
OF_MODEL = {
    "horizon": replace(HORIZON, over="min"),
    "horizon_beyond": Metric(
        "horizon_beyond",
        help="the last lag, where the horizon lies behind",
        meaning="It is there where `horizon` is not: the memory outlasts the window.",
    ),
    "half_life": replace(HALF_LIFE, over="min"),
    "rate": Metric(
        "rate",
        over="max",
        better="less",
        signed=True,
        help="beta of exp(-beta t): in use (driven), else the largest of the queries",
        meaning="With every step the memory falls by that share, roughly: it halves in 0.69 / rate "
        "steps. Only curves of the kinds exponential and growing have one; a negative rate is "
        "growth.",
    ),
    "exponent": Metric(
        "exponent",
        over="max",
        better="less",
        signed=True,
        help="alpha of t^-alpha: in use (driven), else the largest of the queries",
        meaning="Ten times the lag leaves 10^-alpha of the memory. Only curves of the kind "
        "polynomial have one.",
    ),
    "support": Metric(
        "support",
        over="min",
        better="more",
        help="lags after which a finite memory is over: in use (driven), else the fewest of the "
        "queries",
        meaning="Only curves of the kind finite have one; behind it the memory is zero.",
    ),
    "confidence": Metric(
        "confidence",
        over="min",
        better="more",
        help="of the verdict about decay, 0 to 1: in use (driven), else the least of the queries",
        meaning="How clearly the kind of decay stands out among the others. Below about one half, "
        "take the kind as a guess; horizon and half-life do not depend on it.",
    ),
}
#: The same of every query, and of every layer under it, in the order of their importance.
OF_QUERY = {
    name: replace(m, name=f"*/{name}", over="", help=m.help.partition(":")[0])
    for name, m in OF_MODEL.items()
}
#: Numbers of hidden states and of the parts of a host.
OF_LAYER = ("horizon", "horizon_beyond", "half_life", "rate", "exponent")
#: What only one kind of decay has: a curve of another kind has none, which is no gap; one that
#: shows no kind, or nothing at all, might have it.
OF_A_KIND = ("rate", "exponent", "support")
NO_KIND = ("undetermined", "memoryless")


@dataclass(frozen=True, slots=True, eq=False)
class MemoryResult(Result):
    """Memory curves by query, and by layer and query.

    For a model that ran as a whole `layers` are those of the hidden state after every layer, from
    the same passes as `curves`. For a host (`whole` False) they are those of the parts, each run by
    itself, and `curves` holds, per query, the one of the part that remembers longest. `requested`
    are the queries that were asked for, `baseline` what counted as zero input.
    """

    declared: ClassVar[tuple[Metric, ...]] = (*OF_MODEL.values(), *OF_QUERY.values())
    terms: ClassVar[Mapping[str, str]] = {
        **KINDS,
        **TERMS,
        "conf.": f"The confidence of a verdict, from 0 to 1. {OF_MODEL['confidence'].meaning}",
    }
    rules: ClassVar[tuple[Rule, ...]] = OF_CURVES
    attribute: ClassVar[str] = "curves"
    absent: ClassVar[dict[str, Curve]] = {}

    curves: dict[str, Curve]
    layers: dict[str, dict[str, Curve]] = field(default_factory=dict)
    requested: tuple[str, ...] = ()
    baseline: str = "zero"
    whole: bool = True
    facts: Facts | None = None
    #: Steps of all sequences that were fed, by the queries that share their passes.
    fed: dict[str, int] = field(default_factory=dict)

    @classmethod
    def joined(cls, parts: Mapping[str, Self]) -> Self:
        layers = {part: own._named(part) for part, own in parts.items()}
        first = next(iter(parts.values()))
        fed = {name: sum(own.fed.get(name, 0) for own in parts.values()) for name in first.fed}
        return replace(first, curves=longest_curves(layers), layers=layers, whole=False, fed=fed)

    def _named(self, part: str) -> dict[str, Curve]:
        """The curves of a part; where its inputs are not known that is told with what to give."""
        used = self.curves.get(IN_USE)
        if used is None or self.facts is None or not used.fed.startswith(UNIT_NOISE):
            return self.curves
        noise, _, rest = used.fed.rpartition(", ")
        shape = f"--data FILE of shape (T, {self.facts.inputs})"
        fed = f"{noise}, not what `{clean(part)}` gets: {shape}; {rest}"
        return {**self.curves, IN_USE: replace(used, fed=fed)}

    def measured(self) -> list[str]:
        """The queries that have an answer."""
        return [query for query, curve in self.curves.items() if len(curve.values)]

    def remeasured(self, subject: AbstractSubject, setting: Setting) -> dict[str, Curve]:
        """The curves of a subject under the same vector queries, with few probes."""
        from memaudit.memory.runner import quick_curves

        return quick_curves(subject, setting, self)

    # Numbers

    def metrics(self) -> Iterator[Metric]:
        yield from self._of_model()
        for query, curve in self.curves.items():
            part = next((n for n, own in self._parts() if own.get(query) is curve), "")
            for name, (value, beyond) in curve.numbers().items():
                made = {"holder": part, "beyond": beyond, "fed": curve.inputs}
                metric = OF_QUERY[name].at(value, query, **made)
                if name == "horizon" and not self.whole:  # another part may remember longer
                    metric = replace(metric, over="max", unknown=self._unseen(query))
                yield metric
        for layer, curves in self.layers.items():
            for query, curve in curves.items():
                numbers = curve.numbers()
                for name in OF_LAYER:
                    value, beyond = numbers[name]
                    made = {"layer": layer, "beyond": beyond, "fed": curve.inputs}
                    yield OF_QUERY[name].at(value, query, **made)

    def _of_model(self) -> Iterator[Metric]:
        """The numbers of the model: those in use, else of every kind that of the shortest memory.

        A query that sees nothing only because of what it feeds (MA114, MA115) does not count. Of
        two with the same number the one without a caveat is named.
        """
        used = self._used()
        counting = self._counting() if used is None else {IN_USE: used}
        numbers = {query: curve.numbers() for query, curve in counting.items()}
        lost = tuple(query for query in self.requested if query not in self.curves)
        lost = () if IN_USE in counting else lost
        for name, metric in OF_MODEL.items():
            found = {q: n[name] for q, n in numbers.items() if n[name][0] is not None}
            if not found or name == "horizon_beyond":
                continue
            query = self._holder(name, found)
            value, beyond = found[query]
            gaps = tuple(
                q
                for q, curve in counting.items()
                if q not in found and (name not in OF_A_KIND or curve.decay.kind in NO_KIND)
            )
            fed, unknown = counting[query].inputs, (*gaps, *lost)
            metric = metric.at(value, holder=query, unknown=unknown, beyond=beyond, fed=fed)
            if (
                value is not None and beyond is None
            ):  # another query may be below, where less far was looked
                short = [end for _, end in found.values() if end is not None and end < value]
                metric = replace(metric, beyond=min(short, default=None))
            if name == "horizon" and (unseen := self._unseen(query)):
                over = "" if metric.unknown else "max"
                metric = replace(metric, over=over, unknown=(*metric.unknown, *unseen))
            yield metric
            if name == "horizon" and value == math.inf:
                yield OF_MODEL["horizon_beyond"].at(beyond, holder=query, fed=fed)

    @staticmethod
    def _holder(name: str, found: Mapping[str, tuple[float | None, float | None]]) -> str:
        """The query that the number of the model comes from.

        Of those that all lie beyond, it is the one that was looked at least far.
        """

        def order(query: str) -> tuple[float, float]:
            value, beyond = found[query]
            sign = 1.0 if OF_MODEL[name].over == "min" else -1.0
            return sign * float(value or 0.0), math.inf if beyond is None else beyond

        return min(found, key=order)

    def _counting(self) -> dict[str, Curve]:
        """The curves that the numbers of the model are made of, those without a caveat first."""
        curves = informative(self.curves, baseline=self.baseline)
        ordered = sorted(curves, key=lambda query: curves[query].status is not Status.OK)
        return {query: curves[query] for query in ordered}

    def _parts(self) -> list[tuple[str, dict[str, Curve]]]:
        """The parts of a host."""
        return [] if self.whole else list(self.layers.items())

    def _part(self, query: str) -> str:
        """The part that a curve comes from, where a host has several."""
        parts, curve = self._parts(), self.curves.get(query)
        found = (part for part, own in parts if own.get(query) is curve)
        return next(found, "") if len(parts) > 1 else ""

    def _unseen(self, query: str) -> tuple[str, ...]:
        """The parts of a host whose horizon under a query was not seen."""
        curves = [(part, own[query]) for part, own in self._parts() if query in own]
        return tuple(part for part, curve in curves if curve.numbers()["horizon"][0] is None)

    # What to show

    def sections(self) -> Iterator[Section]:
        if not self.curves:
            return
        drawn = {query: curve for query, curve in self.curves.items() if curve.above_floor}
        flat = [clean(query) for query in self.curves if query not in drawn]
        notes = list(self._notes())
        if flat:
            notes.append(f"Nothing rises above the floor: {', '.join(flat)}.")
        yield Section(
            "Memory",
            line="; ".join(
                f"{clean(query)} {clean(curve.decay.kind)}, horizon {curve.horizon_text}"
                for query, curve in self.curves.items()
            ),
            headline=self._headline(),
            under=self._at_worst(),
            text=(
                "How much of an input is still in the answers so many steps later: in use (driven) "
                "as a share of their natural variation, else the largest response over all probes. "
                "Straight on linear lags is exponential, straight on "
                "logarithmic lags is a power law.",
                *notes,
            ),
            tables=(*self._parts_table(), self._table(), *self._sizes_table()),
            figures=(_memory_figure("Memory by lag", drawn, details=True),) if drawn else (),
        )
        if self.layers and (self.whole or len(self.layers) > 1):
            yield self._layers_section()

    def _headline(self) -> str:
        """How long the model remembers in use; where that was not asked, by the other queries."""
        used = self._used()
        if used is None:
            return self._shortest()
        fed, part = clean(used.fed), self._part(IN_USE)
        who, of, longest = "it", "", ""
        if part:
            who, of, longest = f"`{clean(part)}`", f" of `{clean(part)}`", " longest:"
        if used.decay.kind == "memoryless":
            seen = f"within {used.last_lag} steps an earlier input leaves no trace"
            rare = f"; one in fewer than {RULE_OF_THREE / used.probes:.0%} of them could be missed"
            return f"In use, {seen} in the answers{of} ({fed}{rare})."
        if self.facts is not None and self.facts.tokens and fed.startswith("its embeddings"):
            fed += ", no text: --data FILE of token ids feeds yours"
        if used.spread_text:
            fed = f"{used.spread_text}; {fed}"
        if used.horizon_status is HorizonStatus.BEYOND:
            further = self._further(used)
            return f"In use {who} remembers{longest} {used.remembered_text} ({fed}){further}."
        if used.horizon is None:
            why = used.status if used.status is not Status.OK else used.horizon_status
            return f"In use it is not known how long {who} remembers ({fed}): {why.value}."
        half = "" if used.half_life is None else f"; half gone after {used.half_life:.2g}"
        return f"In use {who} remembers{longest} {used.remembered_text} ({fed}{half})."

    def _further(self, curve: Curve) -> str:
        """How to look behind the window of a curve, as the end of a sentence."""
        if any(one.status is Status.DIVERGED for one in self.curves.values()):
            return ""
        if curve.limit:
            return f"; {clean(curve.limit)}"
        return f"; {wider_window([curve])} looks further"

    def _used(self) -> Curve | None:
        """The curve in use, where it could be asked for."""
        used = self.curves.get(IN_USE)
        return None if used is None or used.status in NOT_POSSIBLE else used

    def _at_worst(self) -> str:
        """The longest memory of the queries that take a supremum, where it is longer than in use.

        Inputs of one size may be remembered longer than their supremum over sizes shows: it counts
        from its own largest value, which others make. Then that size is named.

        As in: At worst: more than 511 steps (heaviside at |x| >= 8; its own inputs reach 0.25).
        """
        used = self._used()
        curves = {q: c for q, c in self._counting().items() if c.normalization != "none"}
        if used is None or used.looked_to is None or used.horizon is None:
            return ""
        out = ", ".join(clean(q) for q, c in curves.items() if c.bounded_oscillation)
        left_out = f"Left out: {out}, an oscillation of bounded size (MA118)." if out else ""
        known = {q: c for q, c in curves.items() if c.remembers and not c.bounded_oscillation}
        query = max(known, key=lambda q: (known[q].longest, known[q].extent), default="")
        if not query or known[query].longest <= used.horizon:
            return left_out
        worst = known[query]
        endless = math.isinf(worst.longest)
        most = worst.last_lag if endless else int(worst.longest)
        least = worst.least_size
        where = f"{clean(query)} at {_sizes_text(worst, least)}" if least else clean(query)
        part = self._part(query)
        where += f", `{clean(part)}`" if part != self._part(IN_USE) else ""
        reach = "" if used.reach is None else f"; its own inputs reach {used.reach:.3g}"
        further = self._further(worst) if endless else ""
        more = "more than " if endless else ""
        steps = f"{more}{most} step{'' if most == 1 else 's'}"
        text = f"At worst: {steps} ({where}{reach}){further}."
        if used.horizon and most > FAR_APART * used.horizon:
            times = f"{more}{most / used.horizon:.0f} times"
            if least and used.reach is not None and least > used.reach:
                why = "inputs larger than its own hold the state longer"
            else:
                why = f"{FED[query]} where its own inputs write over it" if query in FED else ""
            text += f" That is {times} longer" + (f": {why}." if why else ".")
        return " ".join(filter(None, (text, left_out)))

    def _shortest(self) -> str:
        """How long the model remembers, by the horizon that metrics and gates have, too."""
        known = {q: c for q, c in self._counting().items() if c.status not in UNREAD or c.looked_to}
        if not known:
            return "No memory curve could be judged."
        known = {query: known[query] for query in self.curves if query in known}
        holder = next((m.holder for m in self._of_model() if m.name == "horizon"), "")
        query = holder if holder in known else next(iter(known))
        curve = known[query]
        far = max(known, key=lambda name: known[name].extent)
        whence = f"query {clean(query)}"
        if known[far].extent != curve.extent:
            lags = known[far].remembered_text or HorizonStatus.HIDDEN.value
            whence += f", the shortest; under {clean(far)} {lags}"
        if curve.decay.kind == "memoryless":
            return f"No trace of an earlier input is seen in the answers ({whence})."
        if not curve.remembered_text:
            return f"Remembers until the numerical floor hides it ({whence})."
        return f"Remembers {curve.remembered_text} ({whence})."

    def _notes(self) -> Iterator[str]:
        """A sentence for every curve that is not simply measured, and for every `?`."""
        for query, curve in self.curves.items():
            name = clean(query)
            if curve.status is not Status.OK:
                yield f"{name}: {curve.status.value}"
            elif curve.horizon_status is HorizonStatus.HIDDEN:
                yield f"{name}: {HorizonStatus.HIDDEN.value}"
            if curve.share is not None and curve.remembers:
                yield (
                    f"{name}: {curve.share:.2%} of the natural variation of an answer comes from "
                    "inputs other than the present one"
                )
            if curve.trials:
                rest = len(curve.trials) - MOST_TRIALS
                fed = ", ".join(clean(trial, limit=40) for trial in curve.trials[:MOST_TRIALS])
                yield f"{name}: fed {fed}" + (f" and {rest} more" if rest > 0 else "")

    def _table(self) -> Table:
        columns = (
            Column("query", key=True),
            Column("decay"),
            Column("conf.", format=".2f", brief=False, help="how sure the verdict is, 0 to 1"),
            Column("window", brief=False, help="the lags that the verdict rests on"),
            Column("rate", better="less", help="beta of exp(-beta t)"),
            Column("exponent", better="less", help="alpha of t^-alpha"),
            Column("support", better="more", help="lags after which a finite memory is over"),
            Column("interval", brief=False, help="of the rate or the exponent"),
            Column("half-life", better="more", help="lags until memory has halved"),
            Column("horizon", better="more", help="lags until it stays below epsilon of its top"),
            Column("range", help="where the interval of the curve has its horizon"),
            Column("floor", format=".0e", help="numerical noise in the unit of the curve"),
            Column("probes", brief=False, help="inputs that were tried"),
        )
        rows = [
            (
                clean(query),
                clean(curve.decay.kind),
                curve.decay.confidence,
                curve.window_text,
                curve.decay.rate,
                curve.decay.exponent,
                curve.decay.support,
                _interval(curve.decay),
                curve.half_life,
                curve.horizon_cell,
                curve.spread_text,
                curve.floor,
                curve.probes_text,
            )
            for query, curve in self.curves.items()
        ]
        return _used(columns, rows)

    def _parts_table(self) -> Iterator[Table]:
        """A row for every part of a host, in natural order: the horizon under every query."""
        if len(self._parts()) < 2:
            return
        first = IN_USE if IN_USE in self.curves else next(iter(self.curves))
        columns = [Column("part", key=True), Column("decay")]
        for query in map(clean, self.curves):
            columns += [Column(f"{query} horizon", better="more", brief=query == IN_USE)]
        rows: list[tuple[Cell, ...]] = []
        for part, own in self._parts():
            cells = [own[query].horizon_cell if query in own else None for query in self.curves]
            kind = own[first].decay.kind if first in own else None
            rows.append((clean(part), kind, *cells))
        yield Table(tuple(columns), tuple(rows), title="Horizon of every part")

    def _sizes_table(self) -> Iterator[Table]:
        """The horizon of every query that a supremum is taken in, by the size of the inputs."""
        curves = {clean(query): curve for query, curve in self.curves.items() if curve.sizes}
        sizes = sorted({at.size for curve in curves.values() for at in curve.sizes})
        if len(sizes) < 2:
            return
        used = self.curves.get(IN_USE)
        reach = None if used is None else used.reach
        columns = (
            Column("|x|", key=True, help="the largest number of an input"),
            Column("in use", help="whether its own inputs are as large"),
            *(Column(query, better="more", help="horizon") for query in curves),
        )
        rows = [
            (
                size,
                "" if reach is None or size > reach else "yes",
                *(
                    next((at.cell for at in curve.sizes if at.size == size), None)
                    for curve in curves.values()
                ),
            )
            for size in sizes
        ]
        yield Table(columns, tuple(rows), title="Horizon by the size of the input")

    def _layers_section(self) -> Section:
        queries = list(dict.fromkeys(q for curves in self.layers.values() for q in curves))
        text = (
            "The hidden state after every layer, from the same passes as the model's own answers."
            if self.whole
            else "The recurrent parts of the model, each run by itself."
        )
        hidden = any(
            curve.horizon_status is HorizonStatus.HIDDEN
            for curves in self.layers.values()
            for curve in curves.values()
        )
        columns, figures = [Column("layer", key=True)], []
        for query in map(clean, queries):
            columns.append(Column(f"{query} kind", brief=False))
            columns.append(Column(f"{query} horizon", better="more"))
        rows: list[tuple[Cell, ...]] = []
        for layer, curves in self.layers.items():
            own = [curves.get(query) for query in queries]
            cells = [(None, None) if c is None else (c.decay.kind, c.horizon_cell) for c in own]
            rows.append((clean(layer), *(cell for pair in cells for cell in pair)))
        if len(self.layers) > 1:
            figures.append(self._horizons_figure(queries))
        for query in queries:
            curves = {
                layer: own[query]
                for layer, own in self.layers.items()
                if query in own and own[query].above_floor
            }
            if curves:
                title = f"Memory of the layers by lag, query {clean(query)}"
                figures.append(_memory_figure(title, curves, details=False))
        return Section(
            "Layers",
            line=self._longest_layers(),
            text=(text, *((f"?: {HorizonStatus.HIDDEN.value}",) if hidden else ())),
            tables=(Table(tuple(columns), tuple(rows)),),
            figures=tuple(figures),
        )

    def _longest_layers(self) -> str:
        """Which layers remember longest, where there are several and the window can tell."""
        if len(self.layers) < 2:
            return ""
        queries: dict[str, list[str]] = {}
        for query, layer in longest_layers(self.layers).items():
            queries.setdefault(clean(layer), []).append(clean(query))
        named = [f"{layer} ({', '.join(own)})" for layer, own in queries.items()]
        return f"longest memory: {', '.join(named)}" if named else "no layer stands out"

    def _horizons_figure(self, queries: list[str]) -> Figure:
        """The horizon of every layer; those beyond the window stand at its last lag."""
        import numpy as np

        series: list[Points] = []
        for query in queries:
            for name, status in (
                (clean(query), HorizonStatus.INSIDE),
                (f"{clean(query)}, {HorizonStatus.BEYOND.value}", HorizonStatus.BEYOND),
            ):
                found = [
                    (number, curves[query], layer)
                    for number, (layer, curves) in enumerate(self.layers.items())
                    if query in curves and curves[query].horizon_status is status
                ]
                if found:
                    lags = [c.last_lag if c.horizon is None else c.horizon for _, c, _ in found]
                    series.append(
                        Points(
                            name,
                            np.array([number for number, _, _ in found]),
                            np.array(lags, dtype=float),
                            tuple(clean(layer) for _, _, layer in found),
                        )
                    )
        return Figure(
            "Horizon of every layer",
            x=Axis("layer, from the first to the last"),
            y=Axis("horizon (steps)"),
            series=tuple(series),
            caption="A layer without a point shows no horizon.",
        )


def _memory_figure(title: str, curves: Mapping[str, Curve], *, details: bool) -> Figure:
    """Curves by lag; with `details` medians, fits over their windows, horizons and floors."""
    series: list[Line | Band] = []
    marks: list[Mark] = []
    for name, curve in curves.items():
        label = clean(name)
        series.append(Line(label, curve.lags, curve.values))
        if not details:
            continue
        if len(curve.low):
            series.append(Band(f"{label}, 95 %", curve.lags, curve.low, curve.high, shown=False))
        if not curve.exact and curve.probes > 1:
            series.append(Line(f"{label}, median", curve.lags, curve.median, shown=False))
        lags, heights = curve.fit()
        if len(lags):
            series.append(Line(f"{label}, fit", lags, heights, dashed=True))
        if len(lags) and curve.decay.window is not None:
            first, last = curve.decay.window
            marks.append(Mark("window of the fit", span=(first, last), series=label))
        if curve.horizon is not None and curve.horizon <= curve.last_lag:
            marks.append(Mark(f"horizon {curve.horizon}", x=curve.horizon, series=label))
        if curve.floor_shown:
            marks.append(Mark("floor", y=curve.floor, series=label))
    return Figure(
        title,
        x=Axis("lag (steps)", log=any(c.decay.kind == "polynomial" for c in curves.values())),
        y=Axis("memory", log=True),
        series=tuple(series),
        marks=tuple(marks),
    )


def _sizes_text(curve: Curve, least: float) -> str:
    """Which sizes hold the horizon of a curve: the least of them, and whether larger ones do."""
    held = [at for at in curve.sizes if at.size >= least]
    held = [at for at in held if at.extent >= max(at.extent for at in held)]
    return f"|x| {'>= ' if len(held) > 1 else '= '}{least:.3g}"


def _interval(decay: Decay) -> str | None:
    pair = decay.interval
    return None if pair is None else f"[{pair[0]:.4g}, {pair[1]:.4g}]"


def _used(columns: tuple[Column, ...], rows: Sequence[tuple[Cell, ...]]) -> Table:
    """A table without the columns in which no row has anything."""
    used = [i for i in range(len(columns)) if any(row[i] not in (None, "") for row in rows)]
    return Table(tuple(columns[i] for i in used), tuple(tuple(r[i] for i in used) for r in rows))
