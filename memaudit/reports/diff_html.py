"""What changed between two reports, as one page for a browser: curves on top of each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memaudit.errors import clean
from memaudit.reports import wording
from memaudit.reports.diff import OTHER_MODEL, WARNING
from memaudit.reports.diff_table import shift
from memaudit.reports.diff_verdict import verdict_line
from memaudit.reports.page.changes import changes_table, facts_table, finding_list
from memaudit.reports.page.document import Document
from memaudit.reports.page.fitting import fitted, listed
from memaudit.reports.page.judged import gates_told
from memaudit.reports.page.markup import Markup, joined, tag, text
from memaudit.reports.page.overlay import (
    exact_figures,
    layer_figures,
    memory_figures,
    stability_figure,
)
from memaudit.reports.page.overlay_spectrum import spectrum_figure
from memaudit.reports.page.section import Section, grid
from memaudit.reports.page.verdict import hit_gates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memaudit.comparing.difference import Difference
    from memaudit.memory.result import Curve
    from memaudit.report import GateResult, Report
    from memaudit.reports.page.detail import Detail


def diff_html(
    difference: Difference,
    before: Report,
    after: Report,
    *,
    files: tuple[str, str] = ("", ""),
    gates: Sequence[GateResult] = (),
) -> str:
    """The page of a difference, of at most five megabytes.

    `files` are where the reports were, `gates` what every `--fail-on` said of the two.
    """
    return fitted(lambda detail: _document(difference, before, after, files, gates, detail))


def _document(
    difference: Difference,
    before: Report,
    after: Report,
    files: tuple[str, str],
    gates: Sequence[GateResult],
    detail: Detail,
) -> Document:
    sections = [
        _memory(difference, before, after, detail),
        _layers(difference, before, after, detail),
        _weights(difference, before, after, detail),
        _findings(difference, detail),
        gates_told(gates, detail),
        _circumstances(difference, detail),
    ]
    return Document(
        title=f"memaudit diff: {clean(before.subject.source, limit=100)}",
        header=_header(before, after, files),
        verdict=_verdict(difference, before, after, gates, detail),
        sections=[section for section in sections if section is not None],
    )


def _header(before: Report, after: Report, files: tuple[str, str]) -> Markup:
    same = before.subject.source == after.subject.source
    names = [text(report.subject.source, limit=300) for report in (before, after)]
    title = names[0] if same else joined(names[0], " → ", names[1])
    rows = [
        tag("li", tag("b", side), f" {clean(report.subject.description, limit=200)} ", f"({file})")
        for side, report, file in zip(("before", "after"), (before, after), files, strict=True)
    ]
    eyebrow = tag("p", "memaudit diff", class_="eyebrow")
    return tag("header", eyebrow, tag("h1", title), tag("ul", rows, class_="facts"), class_="hero")


def _verdict(
    difference: Difference,
    before: Report,
    after: Report,
    gates: Sequence[GateResult],
    detail: Detail,
) -> Markup:
    shared = [query for query in before.memory if query in after.memory]
    cards = listed(shared, detail, lambda q: _card(q, before.memory[q], after.memory[q]))
    line = verdict_line(difference)
    return tag(
        "section",
        tag("h2", "Verdict", id="verdict-title", class_="quiet"),
        tag("p", line[:1].upper() + line[1:] + ".", class_="sentence"),
        hit_gates(gates),
        tag("p", OTHER_MODEL, class_="notice") if difference.other_model else None,
        None if difference.comparable else tag("p", WARNING, class_="notice"),
        tag("div", cards, class_="cards") if cards else None,
        id="verdict",
        aria_labelledby="verdict-title",
    )


def _card(query: str, before: Curve, after: Curve) -> Markup:
    rows = {
        "decay": (before.decay.kind, after.decay.kind),
        "rate or exponent": (wording.strength(before), wording.strength(after)),
        "half-life": (wording.half_life(before), wording.half_life(after)),
    }
    shifts = {
        "rate or exponent": next(
            filter(None, map(shift, _strengths(before), _strengths(after))), ""
        ),
        "half-life": shift(before.half_life, after.half_life),
    }
    facts = [
        (tag("dt", name), tag("dd", _arrow(*pair, shifts.get(name, ""))))
        for name, pair in rows.items()
    ]
    horizons = wording.horizon(before), wording.horizon(after)
    far = shift(before.horizon, after.horizon)
    return tag(
        "article",
        tag("h3", text(query, limit=60)),
        tag("p", tag("span", _arrow(*horizons), class_="big"), f"{far} steps to the horizon"),
        tag("dl", facts),
        class_="card",
    )


def _arrow(before: str, after: str, shifted: str = "") -> str:
    return clean(before) if before == after else f"{clean(before)} → {clean(after)}{shifted}"


def _strengths(curve: Curve) -> tuple[float | None, ...]:
    decay = curve.decay
    return decay.exponent, decay.rate, decay.support


def _memory(
    difference: Difference, before: Report, after: Report, detail: Detail
) -> Section | None:
    figures = [f.markup() for f in memory_figures(before.memory, after.memory, detail)]
    table = changes_table("memory", difference, detail)
    if not figures and table is None:
        return None
    lead = "Dashed: before. Solid: after."
    kind = "grid two" if len(figures) > 1 else "single"
    return Section("memory", "Memory", lead, [table, grid(*figures, kind=kind)], bool(figures))


def _layers(
    difference: Difference, before: Report, after: Report, detail: Detail
) -> Section | None:
    table = changes_table("layers", difference, detail)
    figures = [f.markup() for f in layer_figures(before, after, detail)]
    if table is None and not figures:
        return None
    kind = "grid two" if len(figures) > 1 else "single"
    return Section("layers", "Layers", "", [table, grid(*figures, kind=kind)], bool(figures))


def _weights(
    difference: Difference, before: Report, after: Report, detail: Detail
) -> Section | None:
    names = ("spectrum", "stability", "precision", "gradient", "recall", "assumptions")
    tables = [changes_table(name, difference, detail) for name in names]
    modes = spectrum_figure(before, after, detail)
    moved = stability_figure(before.stability, after.stability)
    exact = exact_figures(before, after, detail)
    figures = [f.markup() for f in (modes, moved, *exact) if f is not None]
    blocks = [*tables, grid(*figures, kind="grid two") if figures else None]
    if not any(blocks):
        return None
    return Section("weights", "Weights and assumptions", "", blocks, bool(exact))


def _findings(difference: Difference, detail: Detail) -> Section | None:
    made = finding_list(difference.findings, detail)
    return Section("findings", "Findings", "", made) if made else None


def _circumstances(difference: Difference, detail: Detail) -> Section | None:
    tables = [
        facts_table("Subject", difference.subject, detail),
        facts_table("Settings", difference.settings, detail),
        facts_table("Measured at all", difference.sections, detail),
        facts_table("Environment", difference.environment, detail),
    ]
    if not any(tables):
        return None
    return Section("circumstances", "Model and circumstances", "", [grid(*tables, kind="grid two")])
