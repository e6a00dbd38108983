"""The head and the foot of the terminal report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from memaudit.errors import clean
from memaudit.memory.result import Status
from memaudit.report import SEVERITIES
from memaudit.reports import wording
from memaudit.reports.headline import memory_told

if TYPE_CHECKING:
    from memaudit.report import Report

#: Names of trials that are told.
FED = 8
PARTIAL = "PARTIAL REPORT: the audit was cut short; this is what was measured before."


def header(report: Report) -> Group:
    """What was audited; a partial report says so in its first line."""
    subject = report.subject
    lines: list[Text | Table] = []
    if not report.complete:
        lines.append(Text(PARTIAL, style="bold red"))
    for error in report.errors:
        where = f" ({error['stage']})" if error.get("stage") else ""
        hint = f"; {error['hint']}" if error.get("hint") else ""
        fact = f"{error.get('code', '')}{where}: {error.get('message', '')}{hint}"
        lines.append(Text(clean(fact), style="red"))
    title = Text("memaudit ", style="bold")
    lines.append(title.append(clean(subject.source)))
    rows = {
        "model": subject.description,
        "family": f"{subject.family} (adapter {subject.adapter})",
        "parameters": f"{subject.parameters:,}, {percent(subject.coverage)} of them run",
        "run as": f"{subject.dtype} on {subject.device}",
        "notes": "; ".join(subject.notes),
        "remembers": memory_told(report),
    }
    lines.append(pairs({key: value for key, value in rows.items() if value}))
    return Group(*lines)


def footer(report: Report) -> Group:
    """The settings that were assumed, time and versions, and the verdict in one line."""
    lines: list[Text | Table] = []
    if report.subject.assumed:
        lines += [Text("Assumed settings", style="bold underline"), pairs(report.subject.assumed)]
        lines += [Text("")]
    lines += [Text(" | ".join(_last_line(report)), style="dim"), Text("")]
    return Group(*lines, Text(verdict_line(report), style="bold"))


def verdict_line(report: Report) -> str:
    """The whole report in one line, for the screen on which only its end is left."""
    curves = [
        f"{clean(query)} {clean(curve.decay.kind)}, horizon {wording.horizon(curve)}"
        for query, curve in report.memory.items()
    ]
    counts = [
        f"{number} {severity}{'s' if number > 1 else ''}"
        for severity in reversed(SEVERITIES)
        if (number := sum(finding.severity == severity for finding in report.findings))
    ]
    return "; ".join([*curves, ", ".join(counts) or "no findings"])


def statuses(report: Report) -> list[Text]:
    """A sentence for every curve that is not simply measured, and for every `?`."""
    told: list[str] = []
    for query, curve in report.memory.items():
        if curve.status is not Status.OK:
            told.append(f"{clean(query)}: {curve.status.value}")
        if wording.horizon(curve) == wording.UNKNOWN:
            told.append(f"{clean(query)}: {wording.HIDDEN}")
        if curve.trials:
            more = f" and {len(curve.trials) - FED} more" if len(curve.trials) > FED else ""
            fed = ", ".join(clean(name, limit=40) for name in curve.trials[:FED])
            told.append(f"{clean(query)}: fed {fed}{more}")
    return [Text("\n".join(told))] if told else []


def layer_statuses(report: Report) -> list[Text]:
    """What a `?` in the table of layers means, where there is one."""
    curves = [curve for layer in report.layers.values() for curve in layer.values()]
    unknown = any(wording.horizon(curve) == wording.UNKNOWN for curve in curves)
    return [Text(f"{wording.UNKNOWN}: {wording.HIDDEN}")] if unknown else []


def pairs(rows: dict[str, str]) -> Table:
    """Names and values in two columns; values are wrapped, never cut."""
    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    for key, value in rows.items():
        made.add_row(Text(clean(key)), Text(clean(value, limit=1200)))
    return made


def percent(share: float) -> str:
    """A share in percent; what is not all of it never rounds up to 100 %."""
    if share >= 1.0:
        return "100 %"
    return f"{min(100 * share, 99.9):.1f} %"


def _last_line(report: Report) -> list[str]:
    keys = ("horizon", "seed", "level")
    settings = [f"{key} {clean(report.settings[key])}" for key in keys if key in report.settings]
    times = [
        f"{clean(stage.removesuffix('_seconds'))} {seconds:.1f} s"
        for stage, seconds in report.timing.items()
    ]
    versions = [
        f"{clean(key)} {clean(value)}"
        for key, value in report.environment.items()
        if key != "platform"  # long, and the same every day; the JSON report has it
    ]
    return settings + times + versions
