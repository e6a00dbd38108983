"""Findings with their advice, and the assumptions of the theory."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from memaudit.errors import clean
from memaudit.report import SEVERITIES
from memaudit.reports import wording
from memaudit.reports.page.fitting import more
from memaudit.reports.page.markup import Markup, tag, text
from memaudit.reports.page.section import Section
from memaudit.reports.page.table import Table
from memaudit.reports.page.verdict import anchor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memaudit.report import Finding, GateResult, Report
    from memaudit.reports.page.detail import Detail

#: So many places of one finding are told; the JSON report has them all.
TOLD = 6


def findings_section(report: Report, detail: Detail) -> Section:
    """Every finding, the gravest first, by code."""
    ordered = sorted(report.findings, key=lambda f: -_grade(f))  # stable: codes stay together
    groups = [list(found) for _, found in groupby(ordered, key=lambda f: (f.code, f.severity))]
    shown = groups[: detail.items]
    blocks = [_group(found, first=_is_first(shown, k)) for k, found in enumerate(shown)]
    rest = len(groups) - len(shown)
    lead = "What a person should know about these numbers, and what to do about it."
    if rest:
        lead += f" {rest} more are in the JSON report."
    if not blocks:
        return Section("findings", "Findings", "none", [])
    return Section("findings", "Findings", lead, blocks)


def gates_section(report: Report, detail: Detail) -> Section | None:
    """What every `--fail-on` said of a report."""
    return gates_told(report.gates, detail)


def gates_told(gates: Sequence[GateResult], detail: Detail) -> Section | None:
    """What every `--fail-on` said."""
    rows = [
        (clean(gate.word), _mark("hit" if gate.hit else "passed"), clean(gate.told))
        for gate in gates[: detail.items]
    ]
    if not rows:
        return None
    table = Table("Gates", ("gate", "verdict", "by what"), rows, quiet=True)
    blocks = [table.markup(), *more(len(gates) - len(rows))]
    return Section("gates", "Gates", "What --fail-on was asked to watch.", blocks)


def assumptions_section(report: Report, detail: Detail) -> Section | None:
    """One row per property that the theory asks for."""
    if not report.assumptions:
        return None
    places = any(item.where for item in report.assumptions)
    rows = [
        (
            clean(item.name),
            *([clean(item.where)] if places else []),
            _mark(item.verdict),
            wording.number(item.residual),
            wording.number(item.tolerance),
            clean(item.note),
        )
        for item in report.assumptions[: detail.items]
    ]
    columns = [
        "assumption",
        *(["layer"] if places else []),
        "verdict",
        "residual",
        "tolerance",
        "note",
    ]
    rest = len(report.assumptions) - detail.items
    lead = "Properties that the theory asks for, measured: a residual against a tolerance."
    lead += f" {rest} more rows are in the JSON report." if rest > 0 else ""
    table = Table("Assumptions of the theory", columns, rows, quiet=True)
    return Section("assumptions", "Assumptions", lead, [table.markup()])


def _group(found: list[Finding], *, first: bool) -> Markup:
    one = found[0]
    severity = one.severity if one.severity in SEVERITIES else "note"
    told = [
        tag("p", tag("b", f"{clean(f.where)}: ") if f.where else None, f.message)
        for f in found[:TOLD]
    ]
    if len(found) > TOLD:
        told.append(tag("p", f"… and {len(found) - TOLD} more places"))
    advice = dict.fromkeys(f.advice for f in found[:TOLD] if f.advice)
    return tag(
        "article",
        tag(
            "h3",
            tag("span", text(one.severity), class_=f"badge {severity}"),
            " ",
            tag("code", one.code),
            f" {clean(one.name)}",
        ),
        told,
        [tag("p", tag("b", "Advice: "), item, class_="advice") for item in advice],
        class_=f"finding {severity}",
        id=anchor(one.code) if first else None,
    )


def _is_first(groups: list[list[Finding]], place: int) -> bool:
    code = groups[place][0].code
    return all(group[0].code != code for group in groups[:place])


def _grade(finding: Finding) -> int:
    return SEVERITIES.index(finding.severity) if finding.severity in SEVERITIES else -1


def _mark(verdict: str) -> Markup:
    mood = {"holds": "good", "passed": "good", "fails": "warning", "hit": "error"}.get(
        verdict, "plain"
    )
    return tag("span", verdict, class_=f"kind {mood}")
