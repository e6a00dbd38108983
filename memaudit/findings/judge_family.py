"""Running every registered rule over the report of a family."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memaudit import registry
from memaudit.errors import MachineError
from memaudit.families.result import FamilyReport
from memaudit.report import SEVERITIES, Finding
from memaudit.strangers import check_findings

if TYPE_CHECKING:
    from memaudit.registry import Plugin


def judge_family(report: FamilyReport) -> tuple[Finding, ...]:
    """Every finding about the family, the gravest first, then by code."""
    found = [f for name in registry.available("findings") for f in _findings(name, report)]
    return tuple(sorted(found, key=lambda f: (-SEVERITIES.index(f.severity), f.code, f.where)))


def _findings(name: str, report: FamilyReport) -> tuple[Finding, ...]:
    try:
        rule = registry.build("findings", name)
        seconds = registry.PATIENCE
        with registry.calling("findings", name, "failed to judge", seconds=seconds) as plugin:
            found = tuple(rule.check_family(_copy_for(plugin, report)))
        check_findings(plugin, found)
    except MachineError as error:  # a stranger's rule is broken: said, and the others still judge
        return (Finding(error.code, "broken-rule", "warning", error.fact, error.hint, name),)
    return found


def _copy_for(plugin: Plugin | None, report: FamilyReport) -> FamilyReport:
    """The report itself, or a copy for a stranger to scribble on."""
    return report if plugin is None else FamilyReport.from_dict(report.to_dict())
