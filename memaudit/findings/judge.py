"""Running every registered rule over a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memaudit import registry
from memaudit.errors import MachineError
from memaudit.report import SEVERITIES, Finding
from memaudit.strangers import check_findings, copy_for

if TYPE_CHECKING:
    from memaudit.report import Report


def judge(report: Report) -> tuple[Finding, ...]:
    """Every finding, the gravest first, then by code and place."""
    found: list[Finding] = []
    for name in registry.available("findings"):
        found.extend(_findings(name, report))
    return tuple(sorted(found, key=_order))


def _findings(name: str, report: Report) -> tuple[Finding, ...]:
    try:
        rule = registry.build("findings", name)
        seconds = registry.PATIENCE
        with registry.calling("findings", name, "failed to judge", seconds=seconds) as plugin:
            found = tuple(rule.check(copy_for(plugin, report)))
        check_findings(plugin, found)
    except MachineError as error:  # a stranger's rule is broken: said, and the others still judge
        return (Finding(error.code, "broken-rule", "warning", error.fact, error.hint, name),)
    return found


def _order(finding: Finding) -> tuple[int, str, str]:
    gravity = SEVERITIES.index(finding.severity) if finding.severity in SEVERITIES else 0
    return -gravity, finding.code, finding.where
