"""The findings of a report, the gravest first, grouped by code."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from memaudit.errors import clean

if TYPE_CHECKING:
    from rich.console import RenderableType

    from memaudit.families.result import FamilyReport
    from memaudit.report import Finding, Report

STYLES = {"error": "bold red", "warning": "yellow", "note": "cyan"}
#: So many places of one finding are told; the JSON report has them all.
TOLD = 4
LONGEST = 1200


def findings_list(report: Report | FamilyReport) -> RenderableType:
    """Code, severity and name in a line, the message and the advice below it."""
    if not report.findings:
        return Text("none")
    groups = groupby(report.findings, key=lambda finding: (finding.code, finding.name))
    return Group(*(_group(list(findings)) for _, findings in groups))


def _group(findings: list[Finding]) -> RenderableType:
    first = findings[0]
    title = Text()
    title.append(f"{clean(first.code)} {clean(first.severity)}", style=STYLES.get(first.severity))
    title.append(f" {clean(first.name)}")
    body: list[RenderableType] = []
    for finding in findings[:TOLD]:
        where = f"{clean(finding.where)}: " if finding.where else ""
        body.append(Text(where + clean(finding.message, limit=LONGEST)))
    if len(findings) > TOLD:
        body.append(Text(f"... and {len(findings) - TOLD} more places"))
    for advice in dict.fromkeys(finding.advice for finding in findings[:TOLD]):
        body.append(Text(f"-> {clean(advice, limit=LONGEST)}", style="italic"))
    return Group(title, *(Padding(item, (0, 0, 0, 2), expand=False) for item in body))
