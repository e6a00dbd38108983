"""Two reports side by side: metrics, rows of tables, curves and findings of any result.

Metrics are paired by their names, rows by the key columns of their tables, series of figures by
their names. The difference is shown like a report: as a document of neutral sections.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memaudit.errors import clean, listed
from memaudit.gates import other_settings, percent
from memaudit.sections import Beyond, Cell, Column, Document, Figure, Section, Table

if TYPE_CHECKING:
    from memaudit.report import Finding, GateResult, Metric, Report

#: Reports show four digits: numbers that look alike there are not called different.
SAME = 1e-4
#: Numbers that the first sentence of a difference holds at most.
LEADING = 4
SUBJECT = (
    *("source", "adapter", "family", "description", "parameters", "coverage", "dtype", "device"),
    *("sha256", "context"),
)
#: Settings that move no number.
NEUTRAL = ("queries", "probes", "trust_remote_code")


@dataclass(frozen=True, slots=True)
class NumberChange:
    """One metric of at least one of two reports."""

    key: str
    before: Metric | None
    after: Metric | None
    #: Why the two cannot be compared, "" where they can.
    why: str = ""

    @property
    def changed(self) -> bool:
        """Whether both reports have it, and not alike."""
        old, new = _value(self.before), _value(self.after)
        return old is not None and new is not None and not same(old, new)

    @property
    def percent(self) -> float | None:
        """The change in hundredths of what it was."""
        old, new = _value(self.before), _value(self.after)
        if isinstance(old, float) and isinstance(new, float) and math.isfinite(old + new):
            return percent(old, new)
        return None

    @property
    def verdict(self) -> str:
        """Better, worse or other, where one report tells it from the other; or unknown."""
        if self.why:
            return "unknown"
        metric = self.after or self.before
        old, new = (m.bounds() for m in (self.before, self.after) if m is not None)
        if metric is None or not metric.better:
            return "other"
        up = new[0] > old[1] or (new[0] >= old[0] and new[1] > old[1])
        down = new[1] < old[0] or (new[1] <= old[1] and new[0] < old[0])
        if up == down:
            return "other"
        return "better" if up == (metric.better == "more") else "worse"


@dataclass(frozen=True, slots=True)
class Difference:
    """What changed from one report to another."""

    before: Report
    after: Report
    numbers: tuple[NumberChange, ...]
    new: tuple[Finding, ...]
    gone: tuple[Finding, ...]
    stayed: tuple[Finding, ...]
    gates: tuple[GateResult, ...] = ()

    @property
    def headline(self) -> str:
        """One sentence: the numbers of the model that tell better from worse, and the findings."""
        leading = [
            change
            for change in self.numbers
            if change.changed
            and change.after is not None
            and not change.after.layer
            and change.after.better
            and not change.key.startswith(("findings", "coverage", "complete"))
        ]
        named: dict[str, NumberChange] = {}
        for change in leading:  # of horizon and impulse/horizon the model's own is enough
            named.setdefault(change.key.rpartition("/")[2], change)
        words = [_sentence(change) for change in list(named.values())[:LEADING]]
        counts = [(len(self.new), "new"), (len(self.gone), "gone"), (len(self.stayed), "stayed")]
        found = ", ".join(f"{count} {word}" for count, word in counts if count) or "none"
        numbers = ", ".join(words) or "no number that tells better from worse has changed"
        return f"{numbers}; findings: {found}"

    def sections(self) -> Iterator[Section]:
        """Numbers, findings, settings, and every section that both reports have."""
        changed = [change for change in self.numbers if change.changed]
        headline = "" if changed else self.headline  # stands over the numbers where there are any
        yield Section("Changes", headline=headline, text=tuple(self._remarks()))
        if changed:
            columns = (
                Column("number", key=True),
                Column("before"),
                Column("after"),
                Column("change", format="+.3g", help="in percent of what it was"),
                Column("verdict"),
            )
            rows = tuple(
                (c.key, _value(c.before), _value(c.after), c.percent, c.verdict) for c in changed
            )
            yield Section("Numbers", headline=self.headline, tables=(Table(columns, rows),))
        groups = {"new": self.new, "gone": self.gone, "stayed": self.stayed}
        if any(groups.values()):
            columns = (
                Column("finding", key=True),
                Column("place", key=True),
                Column("change"),
                Column("severity"),
                Column("message", brief=False),
            )
            rows = tuple(
                (f"{f.code} {f.name}", clean(f.where) or None, word, f.severity, clean(f.message))
                for word, found in groups.items()
                for f in found
            )
            yield Section("Findings", tables=(Table(columns, rows),))
        yield from self._paired_sections()

    def _remarks(self) -> Iterator[str]:
        """What makes the two reports hard to compare."""
        old, new = self.before.subject, self.after.subject
        other = (old.family, old.parameters) != (new.family, new.parameters)
        if old.sha256 and new.sha256 and other:
            yield (
                f"Two different models are compared: {clean(old.description)} and "
                f"{clean(new.description)}."
            )
        for side, report in (("BEFORE", self.before), ("AFTER", self.after)):
            if not report.complete:
                yield f"{side} is incomplete."
        for side, own, other in (
            ("BEFORE", self.before, self.after),
            ("AFTER", self.after, self.before),
        ):
            alone = [clean(name) for name in own.results if name not in other.results]
            if alone:
                yield f"Only {side} measured {listed(alone)}."
        before, after = self.before.settings, self.after.settings
        changed = [
            f"{name} {clean(before.get(name))} -> {clean(after.get(name))}"
            for name in dict.fromkeys((*before, *after))
            if name not in NEUTRAL and _plain(before.get(name)) != _plain(after.get(name))
        ]
        if changed:
            yield f"Measured with other settings: {'; '.join(changed)}."
        for why in dict.fromkeys(change.why for change in self.numbers if change.why):
            count = sum(change.why == why for change in self.numbers)
            yield f"Not comparable, {count} number{'s' if count > 1 else ''}: {why}."
        facts = [
            f"{name} {clean(getattr(old, name))} -> {clean(getattr(new, name))}"
            for name in SUBJECT
            if getattr(old, name) != getattr(new, name)
        ]
        if facts:
            yield f"Model: {'; '.join(facts)}."

    def _paired_sections(self) -> Iterator[Section]:
        before = {section.title: section for section in self.before.sections()}
        after = {section.title: section for section in self.after.sections()}
        for title in before:
            if title not in after:
                continue
            old, new = before[title], after[title]
            pairs = zip(old.tables, new.tables, strict=False)
            tables = tuple(t for a, b in pairs if (t := _rows_changed(a, b)) is not None)
            drawn = zip(old.figures, new.figures, strict=False)
            figures = tuple(_overlaid(a, b) for a, b in drawn)
            if tables or figures:
                yield Section(title, tables=tables, figures=figures)

    def document(self) -> Document:
        """The difference as a writer for people draws it."""
        old, new = clean(self.before.subject.source), clean(self.after.subject.source)
        return Document(
            title=f"{old} -> {new}" if old != new else f"{old}: before and after",
            warnings=tuple(r for r in self._remarks() if not r.startswith("Model:")),
            sections=tuple(self.sections()),
            findings=None,
            gates=self.gates,
        )


def compare(before: Report, after: Report) -> Difference:
    """What changed from one report to the other."""
    old = {metric.key: metric for metric in before.numbers()}
    new = {metric.key: metric for metric in after.numbers()}
    known = {(f.code, f.where) for f in before.findings}
    there = {(f.code, f.where) for f in after.findings}
    numbers: list[NumberChange] = []
    for key in dict.fromkeys((*old, *new)):
        one, other = old.get(key), new.get(key)
        why = other_settings(one, other, before, after) if one and other else ""
        numbers.append(NumberChange(key, one, other, why))
    return Difference(
        before,
        after,
        tuple(numbers),
        new=tuple(f for f in after.findings if (f.code, f.where) not in known),
        gone=tuple(f for f in before.findings if (f.code, f.where) not in there),
        stayed=tuple(f for f in after.findings if (f.code, f.where) in known),
    )


def same(one: Cell, other: Cell) -> bool:
    """Whether two values look alike in four digits."""
    if isinstance(one, Beyond) and isinstance(other, Beyond):
        return same(one.value, other.value)
    numbers = (int, float)
    if isinstance(one, numbers) and isinstance(other, numbers):
        return one == other or math.isclose(one, other, rel_tol=SAME)
    return one == other


def _value(metric: Metric | None) -> float | Beyond | None:
    """What is compared: the number, or how far was looked where it lies beyond that."""
    if metric is None or metric.value is None:
        return None
    if math.isinf(metric.value) and metric.beyond is not None:
        return Beyond(metric.beyond)
    return metric.value


def _sentence(change: NumberChange) -> str:
    assert change.before is not None
    assert change.after is not None
    name = change.key.replace("/", " ").replace("_", " ")
    words = f"{_text(change.before)} -> {_text(change.after)}"
    share = change.percent
    if change.why:
        return f"{name} {words} (not comparable)"
    return f"{name} {words}" + (f" ({share:+.3g} %)" if share is not None else "")


def _text(metric: Metric) -> str:
    value = _value(metric)
    return f"more than {value.value:.4g}" if isinstance(value, Beyond) else Column("").text(value)


def _rows_changed(before: Table, after: Table) -> Table | None:
    """Every cell that differs between rows of the same key, and the rows that only one has."""
    keys = [c for c in after.columns if c.key]
    old = dict(zip(before.keys(), before.rows, strict=True))
    new = dict(zip(after.keys(), after.rows, strict=True))
    places = {c.name: i for i, c in enumerate(before.columns)}
    rows: list[tuple[Cell, ...]] = []
    for key in dict.fromkeys((*old, *new)):
        if key not in old or key not in new:
            words = ("measured" if key in side else "not measured" for side in (old, new))
            rows.append((*key, "row", *words))
            continue
        for i, column in enumerate(after.columns):
            if column.key or column.name not in places:
                continue
            a, b = old[key][places[column.name]], new[key][i]
            if not same(a, b):
                rows.append((*key, column.name, column.text(a), column.text(b)))
    if not rows:
        return None
    columns = (*keys, Column("column", key=True), Column("before"), Column("after"))
    return Table(columns, tuple(rows), title=after.title)


def _overlaid(before: Figure, after: Figure) -> Figure:
    """Both pictures in one, series of the same name beside each other."""

    def renamed(figure: Figure, word: str) -> Iterable[object]:
        return (replace(series, name=f"{series.name} ({word})") for series in figure.series)

    series = (*renamed(before, "before"), *renamed(after, "after"))
    ordered = sorted(series, key=lambda one: one.name.rpartition(" (")[0])  # type: ignore[attr-defined]
    marks = tuple(mark for mark in after.marks if not mark.series)
    return replace(after, series=tuple(ordered), marks=marks)  # type: ignore[arg-type]


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
