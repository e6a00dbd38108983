"""The report as a section of a model card."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, ClassVar

from memaudit.contracts import AbstractReportFormat
from memaudit.errors import clean
from memaudit.memory.result import Status
from memaudit.options import command
from memaudit.precision.result import Precision
from memaudit.recall.result import Recall
from memaudit.reports import wording
from memaudit.reports.headline import headline, remembered
from memaudit.reports.markdown_text import escaped, paragraph, table
from memaudit.reports.placing import placed
from memaudit.reports.summary import PARTIAL, percent
from memaudit.stability.result import Stability

if TYPE_CHECKING:
    from memaudit.memory.result import Curve
    from memaudit.report import Finding, Report

#: Layers, and places of one finding, that are told; the JSON report has them all.
ROWS, PLACES = 12, 4


@dataclass(frozen=True, slots=True)
class Markdown(AbstractReportFormat):
    """Verdicts, findings, and what it takes to measure them again, under one heading."""

    name: ClassVar[str] = "markdown"
    summary: ClassVar[str] = "a section for a model card"
    suffix: ClassVar[str] = ".md"

    def render(self, report: Report) -> str:
        """Paragraphs and tables that GitHub and the hub show alike."""
        blocks = [
            ["## Memory audit"],
            *_head(report),
            *_memory(report),
            *_layers(report),
            *_moved(report),
            *_assumptions(report),
            *_findings(report),
            *_gates(report),
            *_settings(report),
        ]
        return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _head(report: Report) -> list[list[str]]:
    who = report.subject
    partial = [] if report.complete else [[f"**{PARTIAL}**"]]
    about = f": {escaped(who.description)}" if who.description else ""
    size = f"{who.parameters:,} parameters, {percent(who.coverage)} of them run"
    run = f"in {escaped(who.dtype)} on {escaped(who.device)}"
    errors = [
        f"- {escaped(error.get('code', ''))}: {escaped(error.get('message', ''))}"
        for error in report.errors
    ]
    notes = [[paragraph("; ".join(who.notes)) + "."]] if who.notes else []
    head = [[f"**{escaped(who.source)}**{about}. {size}, {run}."]]
    return [*partial, *([errors] if errors else []), *head, *notes]


def _memory(report: Report) -> list[list[str]]:
    if not report.memory:
        return [["No memory was measured."]]
    rows: list[tuple[object, ...]] = [
        (
            query,
            curve.decay.kind,
            _strength(curve),
            wording.half_life(curve),
            wording.horizon(curve),
        )
        for query, curve in report.memory.items()
    ]
    head = ("query", "decay", "strength", "half-life", "horizon")
    odd = [
        f"- {escaped(query)}: {curve.status.value}"
        for query, curve in report.memory.items()
        if curve.status is not Status.OK
    ]
    epsilon = min(curve.epsilon for curve in report.memory.values())
    legend = [
        "Half-lives and horizons count steps. The horizon is the lag from which memory stays below "
        f"{epsilon:g} of its maximum; > N is beyond the window, ? is hidden by rounding. "
        "Lag 0 of an impulse is the present and counts for neither."
    ]
    return [*_remembered(report), table(head, rows), *([odd] if odd else []), legend]


def _remembered(report: Report) -> list[list[str]]:
    """The horizon of the model, which metrics and gates have, too."""
    found = headline(report)
    lags = "" if found is None else remembered(found.curve)
    if found is None or not lags:
        return []
    return [[f"It remembers for **{lags}** ({escaped(found.whence)})."]]


def _strength(curve: Curve) -> str:
    """The number that belongs to the kind, with its interval where that has a width."""
    pair, number = curve.decay.interval, wording.strength(curve)
    low, high = ("", "") if pair is None else (f"{end:.4g}" for end in pair)
    return number if low == high else f"{number} ({low} to {high})"


def _layers(report: Report) -> list[list[str]]:
    if not report.spectrum:
        return []
    rows: list[tuple[object, ...]] = [
        (
            placed(s.where, s.layer),
            s.cell,
            s.parameterization,
            f"{s.margin:.3g}",
            wording.endless(s.time_scale),
        )
        for s in report.spectrum[:ROWS]
    ]
    more = len(report.spectrum) - ROWS
    rest = [[f"… and {more} more layers."]] if more > 0 else []
    head = ("recurrent layer", "cell", "form", "margin", "time scale")
    return [table(head, rows), *rest]


def _moved(report: Report) -> list[list[str]]:
    told: list[str] = []
    if isinstance(report.stability, Stability):
        first = report.stability.first
        radius = f"{wording.endless(first.radius.value)} ({escaped(first.radius.criterion)})"
        told.append(f"- Stability radius of the {escaped(first.group)} weights: {radius}")
    if isinstance(report.precision, Precision):
        errors = [
            f"{escaped(rounding.format)} {100 * rounding.relative:.2g} %"
            for rounding in report.precision.roundings
            if rounding.relative is not None
        ]
        told.append(f"- Error of the answers in other number formats: {', '.join(errors) or '-'}")
    for gradient in report.gradient[:ROWS]:
        if gradient.recommended:
            form = f"{escaped(gradient.recommended)} (now {escaped(gradient.current)})"
            told.append(f"- Form for fine-tuning {escaped(gradient.layer)}: {form}")
    if isinstance(report.recall, Recall) and report.recall.capacity is not None:
        told.append(f"- Memory capacity of a state: {report.recall.capacity:.4g} past inputs")
    return [told] if told else []


def _assumptions(report: Report) -> list[list[str]]:
    failed = dict.fromkeys(escaped(a.name) for a in report.assumptions if a.holds is False)
    if not report.assumptions:
        return []
    if not failed:
        return [["Every assumption of the theory that was measured holds."]]
    return [[f"Assumptions of the theory that do not hold: {', '.join(failed)}."]]


def _findings(report: Report) -> list[list[str]]:
    if not report.findings:
        return [["### Findings"], ["None."]]
    groups = groupby(report.findings, key=lambda finding: (finding.code, finding.name))
    return [["### Findings"], [line for _, group in groups for line in _finding(list(group))]]


def _finding(findings: list[Finding]) -> list[str]:
    first = findings[0]
    title = f"{escaped(first.code)} {escaped(first.severity)}: {escaped(first.name)}"
    lines = [f"- **{title}**"]
    for finding in findings[:PLACES]:
        where = f"{escaped(finding.where)}: " if finding.where else ""
        lines.append(f"  - {where}{escaped(finding.message)}")
    if len(findings) > PLACES:
        lines.append(f"  - … and {len(findings) - PLACES} more places")
    advice = dict.fromkeys(escaped(finding.advice) for finding in findings[:PLACES])
    return [*lines, *(f"  - *{text}*" for text in advice)]


def _gates(report: Report) -> list[list[str]]:
    """What --fail-on said, a line a gate; nothing where none was asked."""
    if not report.gates:
        return []
    lines = []
    for gate in report.gates:
        state = "**hit by**" if gate.hit else "not hit:" if gate.told else "not hit"
        told = f" {escaped(gate.told)}" if gate.told else ""
        lines.append(f"- --fail-on {escaped(gate.word)} was {state}{told}")
    return [["### Gates"], lines]


def _settings(report: Report) -> list[list[str]]:
    versions = ", ".join(f"{escaped(k)} {escaped(v)}" for k, v in _versions(report).items())
    assumed = [f"- {escaped(k)}: {escaped(v)}" for k, v in report.subject.assumed.items()]
    weights = f"sha256 of the weights {escaped(report.subject.sha256)}"
    facts = [text for text in (versions, weights if report.subject.sha256 else "") if text]
    return [
        ["### Settings"],
        [f"<pre>{escaped(command(report), limit=1500)}</pre>"],
        *([[f"Measured with {'; '.join(facts)}."]] if facts else []),
        *([["What the source does not say was assumed:"], assumed] if assumed else []),
    ]


def _versions(report: Report) -> dict[str, str]:
    """What the numbers depend on; the machine is nobody else's."""
    hidden = ("platform",)
    return {clean(k): v for k, v in report.environment.items() if k not in hidden}
