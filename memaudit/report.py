"""A whole audit as one record: results, findings, metrics, sections, and its strict JSON form.

The report knows no capability. A result says its own numbers (`metrics`) and what to show of it
(`sections`); gates, trackers, tables and comparisons need nothing else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from memaudit.errors import MemauditError, clean, listed
from memaudit.records import Record, decode
from memaudit.report_files import SCHEMA, check_schema, read_json, undamaged, write_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.figure import Figure
    from pandas import DataFrame

    from memaudit.sections import Document, Section

PREFIX = "memaudit/"
SEVERITIES = ("note", "warning", "error")
#: The first line of a report that is not complete.
PARTIAL = "PARTIAL REPORT: the audit was cut short; this is what was measured before."
#: What a report says of a model that was not run.
UNRUN = (
    "The model was not run: weights tell spectra and no more. Memory in use, curves, what data "
    "make of the steps, stability and precision need a run."
)


def spelled(name: str) -> str:
    """A name as it is compared: `impulse/half_life`, `impulse.half-life` and longer ones alike."""
    plain = name.strip().removeprefix(PREFIX).removeprefix("memaudit.")
    return plain.replace("/", ".").replace("-", "_").lower()


@dataclass(frozen=True, slots=True)
class Metric:
    """One named number of the model or, with `layer`, of a layer.

    A result declares its metrics once, without values, and yields them by `at`. A `*` in a declared
    name stands for a word such as a number format. `value` None was not measured; it is infinite
    where it lies `beyond` how far was looked. `over` ("min" or "max") makes the number of the model
    from those of the layers. `better` is "more" or "less" where a change is good or bad; `signed`
    numbers may be negative, `whole` ones are counts. `help` is what it is in a line, `meaning` what
    it says to a user, for `memaudit explain`. `within` names the option that limits how far
    is looked. `holder` is the query or layer that a number of the model comes from, `unknown` those
    that were not measured and might change it. `fed` says which inputs it was measured on, where
    these are not made by memaudit: numbers on others are not comparable.
    """

    name: str
    value: float | None = None
    layer: str = ""
    over: str = ""
    better: str = ""
    help: str = ""
    meaning: str = ""
    beyond: float | None = None
    holder: str = ""
    unknown: tuple[str, ...] = ()
    signed: bool = False
    whole: bool = False
    within: str = ""
    fed: str = ""

    @property
    def key(self) -> str:
        """The name in `report.metrics()`, without the prefix."""
        return clean(f"{self.name}/{self.layer}" if self.layer else self.name)

    def matches(self, name: str) -> bool:
        """Whether a name, with or without a layer behind it, may be this declared metric."""
        pattern = re.escape(spelled(self.name)).replace(r"\*", "[^.]+")
        return re.fullmatch(rf"{pattern}(?:\..+)?", spelled(name)) is not None

    def bounds(self) -> tuple[float, float]:
        """The smallest and the largest that the number can be, as far as was measured."""
        lowest = -math.inf if self.signed else 0.0
        if self.value is None:
            return lowest, math.inf
        low = high = self.value
        if self.beyond is not None and self.beyond < self.value:
            # Some query was looked at less far than the number is large, or all were. A count
            # beyond the last lag is at least one more; anything else is just above it.
            low = self.beyond + 1 if self.whole else math.nextafter(self.beyond, math.inf)
        if self.unknown and self.over != "max":
            low = lowest
        if self.unknown and self.over != "min":
            high = math.inf
        return low, high

    def text(self) -> str:
        """The number in four digits, and the query or layer that it comes from."""
        if self.value is None:
            return "not measured"
        if math.isinf(self.value):
            return "infinite" if self.beyond is None else f"beyond {self.beyond:.4g}"
        return f"{self.value:.4g}" + (f" at {clean(self.holder)}" if self.holder else "")

    def at(self, value: float | None, *words: str, **facts: Any) -> Metric:
        """The metric with a value, and with words for the stars in its name."""
        name = self.name
        for word in words:
            name = name.replace("*", word, 1)
        known = None if value is None or math.isnan(value) else float(value)
        return replace(self, name=name, value=known, **facts)


@dataclass(frozen=True, slots=True, eq=False)
class Finding(Record):
    """Something that a person should know, with a permanent code and the advice."""

    code: str
    name: str
    severity: str
    message: str
    advice: str
    where: str = ""

    def __post_init__(self) -> None:
        if self.severity not in SEVERITIES:
            raise ValueError(f"the severity of a finding is {self.severity!r}")


@dataclass(frozen=True, slots=True, eq=False)
class GateResult(Record):
    """One `--fail-on`: the word as it was given, whether it was hit, and by what.

    `reason` is empty for a gate that simply passed. A gate that could not tell is hit, and says so.
    """

    word: str
    hit: bool
    reason: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Recurrence(Record):
    """One recurrent layer of a model: its name, cell and size."""

    layer: str
    cell: str
    size: int
    parameters: int
    directions: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class Identity(Record):
    """What was audited: where it came from and how it was opened.

    `coverage` is the share of the parameters that the audited computation uses. `assumed` maps
    every option that the source does not state to the value taken and the reason. `whole` is False
    for a host, whose parts are run one by one. `context` is how many steps the model is said to be
    made for, `longest` how many it can be run for; None when nothing says so, or limits it.
    `attention` is "causal" or "both ways" where attention alone carries the past, "" elsewhere.
    `unreached` are recurrent layers of a host that were not run.
    """

    source: str
    adapter: str
    family: str
    parameters: int
    dtype: str
    device: str
    sha256: str = ""
    description: str = ""
    coverage: float = 1.0
    recurrences: tuple[Recurrence, ...] = ()
    assumed: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    whole: bool = True
    context: int | None = None
    longest: int | None = None
    attention: str = ""
    unreached: tuple[str, ...] = ()


class Result(Record):
    """What one probe measured: a frozen record with its numbers and what to show of them.

    Laws: `metrics` yields declared metrics only; `sections` is pure; the JSON form is that of the
    codec. `report.NAME` gives the field that `attribute` names, or the result itself where it names
    none, and `absent` when the probe did not run.
    """

    __slots__ = ()

    #: Every metric that may be yielded, without values.
    declared: ClassVar[tuple[Metric, ...]] = ()
    #: Words of its sections that are no metric, and what each means: `memaudit explain` knows them.
    terms: ClassVar[Mapping[str, str]] = {}
    #: The rules that judge this result, made by `memaudit.rules.rule`.
    rules: ClassVar[tuple[Any, ...]] = ()
    attribute: ClassVar[str] = ""
    absent: ClassVar[Any] = None

    @classmethod
    def joined(cls, parts: Mapping[str, Any]) -> Self:
        """One result from those of the parts of a host, by the names of the parts.

        By itself a result joins the records of its `attribute`, whose `where` is their part; one
        that names none and may be asked of several parts must say here how to join them.
        """
        first = next(iter(parts.values()))
        if not cls.attribute:
            if len(parts) > 1:
                raise TypeError(f"{cls.__name__}.joined is not written: results of {listed(parts)}")
            return first
        items = (
            (part, item) for part, own in parts.items() for item in getattr(own, cls.attribute)
        )
        joined = tuple(replace(item, where=part) for part, item in items)
        return replace(first, **{cls.attribute: joined})

    def metrics(self) -> Iterable[Metric]:
        """The named numbers, those that were not measured with the value None."""
        return ()

    def sections(self) -> Iterable[Section]:
        """What to show, the most important first."""
        return ()

    def measured(self) -> Iterable[str]:
        """Further names that rules may need, such as the queries that have an answer."""
        return ()


@dataclass(frozen=True, slots=True, eq=False)
class UnreadResult(Result):
    """The result of a probe that is not installed here, kept as it was written."""

    probe: str
    data: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """What was read."""
        return self.data

    def sections(self) -> Iterator[Section]:
        """That there is something, which its distribution would show."""
        from memaudit.sections import Section

        yield Section(clean(self.probe), line="measured, but that probe is not installed here")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Report(Record):
    """A whole audit. `complete` is False when it was cut short; what was measured is kept.

    `report["NAME"]` is the result of a probe, `report.NAME` its public value: curves by query for
    `memory`, records by layer for `spectrum`, and so on.
    """

    subject: Identity
    settings: dict[str, Any]
    results: dict[str, Result] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    gates: tuple[GateResult, ...] = ()
    complete: bool = True
    errors: tuple[dict[str, str], ...] = ()
    timing: dict[str, float] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        """The result of a probe by its name; KeyError when it did not run."""
        return self.results[name]

    def __contains__(self, name: object) -> bool:
        return name in self.results

    def __getattr__(self, name: str) -> Any:
        """The public value of a result: `report.closed_form` for the probe closed-form."""
        if name.startswith("_"):
            raise AttributeError(name)
        from memaudit import registry

        probe = name.replace("_", "-")
        result = self.results.get(probe)
        if result is None:
            try:
                return registry.load(registry.find("probes", probe)).result.absent
            except MemauditError:
                raise AttributeError(f"a report has no {name!r}") from None
        return getattr(result, result.attribute) if result.attribute else result

    @property
    def layers(self) -> dict[str, dict[str, Any]]:
        """Memory curves by layer and query: of hidden states, or of the parts of a host.

        For a host (`subject.whole` False) `memory` holds, per query, the curve of the part that
        remembers longest.
        """
        return getattr(self.results.get("memory"), "layers", {})

    def __repr__(self) -> str:
        shown = "".join(f"\n  {name}: {s.line}" for name, s in self._lines())
        codes = " ".join(clean(finding.code) for finding in self.findings) or "none"
        title = f"{clean(self.subject.source)}: {clean(self.subject.description)}"
        return f"Report({title}{shown}\n  findings: {codes})"

    def _lines(self) -> Iterator[tuple[str, Section]]:
        for name, result in self.results.items():
            for section in result.sections():
                if section.line:
                    yield name, section

    # Numbers

    def numbers(self) -> list[Metric]:
        """Every metric of the results and of the audit, those of the model made of its layers'.

        Of two layers with one name the second gets another.
        """
        found = [metric for result in self.results.values() for metric in result.metrics()]
        counts = [sum(f.severity == s for f in self.findings) for s in SEVERITIES]
        own = [
            *(FINDINGS.at(n, level) for level, n in zip(SEVERITIES, counts, strict=True)),
            COVERAGE.at(self.subject.coverage),
            COMPLETE.at(self.complete),
            PARAMETERS.at(self.subject.parameters),
        ]
        distinct = list(_distinct(found))
        of_model = (metric for metric in distinct if not metric.layer)
        of_layers = (metric for metric in distinct if metric.layer)
        return [*of_model, *_folded(found), *of_layers, *own]

    def metrics(self) -> dict[str, float]:
        """The measured numbers by flat names, for any tracker: `memaudit/impulse/horizon`.

        Only finite ones: what was not measured is absent. A horizon beyond the window is absent,
        too, and the last lag stands under `horizon_beyond`, as in the logs of the callbacks.
        """
        return {
            PREFIX + metric.key: metric.value
            for metric in self.numbers()
            if metric.value is not None and math.isfinite(metric.value)
        }

    def rows(self) -> list[dict[str, Any]]:
        """A row for the model and one a layer, as plain values and None.

        The columns are `row`, `layer`, the verdicts (`impulse_kind`), those of every table that has
        a row a layer, and every metric by its name with underscores: `impulse_horizon`, which is
        None where it lies beyond the window, whose last lag is `impulse_horizon_beyond`.
        """
        curves = getattr(self, "memory", {})
        kinds = {f"{clean(name)}_kind": curve.decay.kind for name, curve in curves.items()}
        rows: dict[str, dict[str, Any]] = {"": {"row": "model", "layer": None, **kinds}}
        for section in self.sections():
            for table in section.tables:
                names = [column.name for column in table.columns]
                if names[0] != "layer" or sum(column.key for column in table.columns) != 1:
                    continue
                for cells in table.rows:
                    row = rows.setdefault(str(cells[0]), {"row": "layer", "layer": str(cells[0])})
                    for column, cell in zip(table.columns[1:], cells[1:], strict=True):
                        if isinstance(cell, str | bool | int | float):
                            row.setdefault(column.name.replace(" ", "_").replace("-", "_"), cell)
        for metric in self.numbers():
            row = rows.setdefault(metric.layer, {"row": "layer", "layer": metric.layer})
            beyond = metric.beyond is not None and metric.value == math.inf
            row[metric.name.replace("/", "_").replace("-", "_")] = None if beyond else metric.value
        columns = dict.fromkeys(name for row in rows.values() for name in row)
        return [{name: row.get(name) for name in columns} for row in rows.values()]

    def frame(self) -> DataFrame:
        """The `rows` as a pandas table; what was not measured is NaN or NA.

        Needs the extra `memaudit[frame]`.
        """
        from memaudit.extras import needs

        with needs("pandas", extra="frame"):
            from pandas import DataFrame
        rows = self.rows()
        types = {name: _column_type([row[name] for row in rows]) for name in rows[0]}
        return DataFrame(rows).astype({**types, "layer": "string"})

    # What to show

    def sections(self) -> list[Section]:
        """What every result has to show, in the order in which they were measured."""
        from memaudit.sections import figures_joined

        return figures_joined(s for result in self.results.values() for s in result.sections())

    def document(self) -> Document:
        """The report as a writer for people draws it."""
        from memaudit.options import command
        from memaudit.sections import Document

        subject, unrun = self.subject, bool(self.settings.get("weights_only"))
        share = f"{_percent(subject.coverage)} of them {'read' if unrun else 'run'}"
        facts = [
            ("model", clean(subject.description) or clean(subject.family)),
            ("parameters", f"{subject.parameters:,}, {share}"),
            ("stored as", clean(subject.dtype))
            if unrun
            else ("run as", f"{clean(subject.dtype)} on {clean(subject.device)}"),
            ("family", f"{clean(subject.family)} (adapter {clean(subject.adapter)})"),
            *((f"assumed {clean(k)}", clean(v)) for k, v in subject.assumed.items()),
            *(("note", clean(note)) for note in subject.notes),
        ]
        warnings = [] if self.complete else [PARTIAL]
        for error in self.errors:
            stage = f" ({error['stage']})" if error.get("stage") else ""
            hint = f"; {error['hint']}" if error.get("hint") else ""
            fact = f"{error.get('code', '')}{stage}: {error.get('message', '')}{hint}"
            warnings.append(clean(fact, limit=1200))
        shown = ("horizon", "seed", "level")
        footer = [f"{key} {clean(self.settings[key])}" for key in shown if key in self.settings]
        if self.timing:
            footer.append(f"{sum(self.timing.values()):.1f} s")
        footer += [
            f"{clean(key)} {clean(value)}"
            for key, value in self.environment.items()
            if key != "platform"  # long, and the same every day; the table of settings has it
        ]
        sections = self.sections()
        sections = [*sections, *self._unrun(sections)]
        headed = [section for section in sections if section.headline]
        if not headed and (left := self.settings.get("left_out")):
            shown = listed(map(clean, left), most=4)
            warnings.append(f"The budget ended before there was a verdict; left out: {shown}.")
        others = [section for section in sections if not section.headline]
        return Document(
            title=clean(subject.source),
            facts=tuple(facts),
            warnings=tuple(warnings),
            sections=(*headed, *others, *self._unreached(), self._settings()),
            findings=self.findings,
            gates=self.gates,
            footer=tuple(footer),
            command=command(self),
        )

    def _unrun(self, sections: Iterable[Section]) -> Iterator[Section]:
        """What stored weights alone say first, and what they cannot say."""
        from memaudit.sections import Section

        if self.settings.get("weights_only"):
            said = next(
                (section.line for section in sections if section.line), "no recurrent layer"
            )
            headline = f"From stored weights alone: {said}."
            yield Section("From stored weights alone", headline=headline, under=UNRUN)

    def _unreached(self) -> Iterator[Section]:
        """The layers that the verdict says nothing about: not run, or failed."""
        from memaudit.sections import Section

        failed = [e["where"] for e in self.errors if e.get("where") not in ("", *self.layers, None)]
        names = list(dict.fromkeys([*self.subject.unreached, *failed]))
        if names:
            hint = " (--set layers=all runs them)" if self.subject.unreached else ""
            yield Section("Not reached", line=listed(map(clean, names)) + hint)

    def _settings(self) -> Section:
        """All that the numbers rest on."""
        from memaudit.sections import Column, Section, Table

        who = self.subject
        weights = {
            "sha256 of the weights": who.sha256,
            "recurrent layers": len(who.recurrences),
            "context": who.context,
            "longest input": who.longest,
        }
        times = {name.removesuffix("_seconds"): f"{s:.1f} s" for name, s in self.timing.items()}
        groups = {
            "Measurement": self.settings,
            "Model": weights,
            "Environment": self.environment,
            "Time": times,
        }
        columns = (Column("name", key=True), Column("value"))
        tables = [
            Table(
                columns,
                tuple((clean(k, limit=120), _setting(v)) for k, v in facts.items() if v or v == 0),
                title=title,
            )
            for title, facts in groups.items()
        ]
        return Section("Settings", tables=tuple(t for t in tables if t.rows), detail=True)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from memaudit import registry

        return registry.build("reports", "html").notebook(self)

    def plot(self, *, queries: Sequence[str] | None = None) -> Figure:
        """The report as a matplotlib figure, of these queries or of all; `savefig` writes it.

        Needs the extra `memaudit[plot]`.
        """
        from memaudit import registry

        return registry.build("reports", "figure").draw(self, queries)

    # Files

    def to_dict(self) -> dict[str, Any]:
        """The JSON report: schema number first, then the version, then the fields."""
        from memaudit import __version__

        return {"schema": SCHEMA, "memaudit": __version__, **Record.to_dict(self)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The inverse of `to_dict`; refuses a schema that it does not know."""
        check_schema(data)
        with undamaged():
            body = {k: v for k, v in data.items() if k not in ("schema", "memaudit", "results")}
            raw = data.get("results")
            if not isinstance(raw, dict):
                raise TypeError("results is no object")
            results = {name: _decoded(name, item) for name, item in raw.items()}
            made = replace(decode(cls, body), results=results)
            for name in ("queries", "probes"):
                decode(tuple[str, ...], made.settings.get(name, ()), f"settings.{name}")
            return made

    def save(self, path: str | Path) -> Path:
        """Write the JSON report in one atomic step and give back its path."""
        return write_json(self.to_dict(), path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a report that `save` wrote."""
        return cls.from_dict(read_json(path))


#: The metrics of an audit itself.
FINDINGS = Metric("findings/*", better="less", help="how many of a level there are")
COVERAGE = Metric(
    "coverage",
    better="more",
    help="share of the parameters that were run",
    meaning="The verdict is about these parameters only. `memaudit list adapters` shows options "
    "that may run more of them.",
)
COMPLETE = Metric("complete", better="more", help="1, or 0 when the audit was cut short")
PARAMETERS = Metric("parameters", help="how many the model has")
OWN = (FINDINGS, COVERAGE, COMPLETE, PARAMETERS)


def _folded(found: Iterable[Metric]) -> Iterator[Metric]:
    """The numbers of the model that are made of those of its layers."""
    groups: dict[str, list[Metric]] = {}
    for metric in found:
        if metric.over and metric.layer:
            groups.setdefault(metric.name, []).append(metric)
    for parts in groups.values():
        known = [m for m in parts if m.value is not None]
        if not known:
            continue
        fold = {"min": min, "max": max}[parts[0].over]
        worst = fold(known, key=lambda m: m.value)
        unknown = tuple(m.layer for m in parts if m.value is None)
        yield replace(worst, layer="", holder=worst.layer, unknown=unknown, beyond=None)


def _distinct(found: Iterable[Metric]) -> Iterator[Metric]:
    taken: set[str] = set()
    for metric in found:
        key, count = metric.key, 2
        if metric.value is not None:
            while key in taken:
                key, count = f"{metric.key} ({count})", count + 1
            taken.add(key)
        if key == metric.key:
            yield metric
        elif metric.layer:
            yield replace(metric, layer=f"{metric.layer} ({count - 1})")
        else:
            yield replace(metric, name=key)


def _decoded(name: str, data: Any) -> Result:
    """A result by the class of its probe, or as it is where that probe is not installed."""
    from memaudit import registry

    try:
        kind = registry.load(registry.find("probes", name)).result
    except MemauditError:
        return UnreadResult(name, decode(dict[str, Any], data, f"results.{name}"))
    return decode(kind, data, f"results.{name}")


def _column_type(values: list[Any]) -> str:
    """The type of a column of `frame`: texts, counts that may be missing, or else floats."""
    kinds = {type(value) for value in values if value is not None}
    if str in kinds:
        return "string"
    return {frozenset([int]): "Int64", frozenset([bool]): "boolean"}.get(
        frozenset(kinds), "float64"
    )


def _percent(share: float) -> str:
    """A share in percent; what is not all of it never rounds up to 100 %."""
    return "100 %" if share >= 1.0 else f"{min(100 * share, 99.9):.1f} %"


def _setting(value: Any) -> str:
    """The value of a setting, lists and options of probes included, as words."""
    if isinstance(value, dict):
        value = [f"{name} {item}" for name, item in value.items()]
    if isinstance(value, list | tuple):
        value = ", ".join(map(str, value))
    return clean(value, limit=600)
