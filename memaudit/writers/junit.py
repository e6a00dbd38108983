"""The rules and gates as test cases, in JUnit's XML."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar
from xml.etree import ElementTree

from memaudit.errors import clean
from memaudit.interfaces import AbstractReportFormat
from memaudit.report import PARTIAL
from memaudit.rules import all_rules, unmet
from memaudit.writers.terminal import verdict_line

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from memaudit.report import Finding, Report

LONGEST = 1200
#: Findings that fail their test; a note passes it, and is written there.
FAILING = ("error", "warning")


@dataclass(frozen=True, slots=True)
class Junit(AbstractReportFormat):
    """One test case for the audit, for every gate, and for every rule.

    A rule without what it needs is skipped, and so is an open gate that does not know.
    """

    name: ClassVar[str] = "junit"
    summary: ClassVar[str] = "rules and gates as test cases, in JUnit's XML"
    suffix: ClassVar[str] = ".xml"

    def render(self, report: Report) -> str:
        """A suite of test cases; the verdict is its output."""
        suite = ElementTree.Element("testsuite", name=f"memaudit {clean(report.subject.source)}")
        properties = ElementTree.SubElement(suite, "properties")
        for name, value in _facts(report).items():
            ElementTree.SubElement(properties, "property", name=name, value=clean(value))
        suite.append(_audit(report))
        suite.extend(_gates(report))
        suite.extend(_rules(report))
        ElementTree.SubElement(suite, "system-out").text = verdict_line(report.document())
        whole = ElementTree.Element("testsuites", name="memaudit")
        whole.append(suite)
        for element in (suite, whole):
            element.attrib.update(_counts(suite, sum(report.timing.values())))
        ElementTree.indent(whole)
        text = ElementTree.tostring(whole, encoding="unicode")
        return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _audit(report: Report) -> Element:
    """Whether everything was measured: what went wrong is an error of the test itself."""
    case = _case("audit", "complete")
    for error in report.errors:
        fact = "; ".join(filter(None, (error.get("message", ""), error.get("hint", ""))))
        _outcome(case, "error", clean(error.get("code", "")), clean(fact, limit=LONGEST))
    if not report.complete and not report.errors:
        _outcome(case, "error", "partial", PARTIAL)
    return case


def _gates(report: Report) -> list[Element]:
    cases = [_case("gate", gate.word) for gate in report.gates]
    for case, gate in zip(cases, report.gates, strict=True):
        if gate.hit:
            _outcome(case, "failure", "gate", f"hit by {clean(gate.reason, limit=LONGEST)}")
        elif gate.reason:
            _skipped(case, gate.reason)
    return cases


def _rules(report: Report) -> list[Element]:
    """Every rule that is known here, and those that only the report knows."""
    found: dict[str, list[Finding]] = {}
    for finding in report.findings:
        found.setdefault(finding.code, []).append(finding)
    known = all_rules()
    names = {code: rule.name for code, rule in known.items()}
    names |= {code: findings[0].name for code, findings in found.items()}
    cases: list[Element] = []
    for code, name in names.items():
        case = _case("finding", f"{code} {name}")
        reason = unmet(known[code], report) if code in known and code not in found else ""
        cases.append(_skipped(case, reason) if reason else _rule(case, found.get(code, [])))
    return cases


def _rule(case: Element, findings: list[Finding]) -> Element:
    texts = [_line(finding) for finding in findings]
    if any(finding.severity in FAILING for finding in findings):
        more = f" (and {len(texts) - 1} more)" if len(texts) > 1 else ""
        head = clean(findings[0].message, limit=LONGEST) + more
        _outcome(case, "failure", findings[0].severity, head, "\n".join(texts))
    elif texts:
        ElementTree.SubElement(case, "system-out").text = "\n".join(texts)
    return case


def _line(finding: Finding) -> str:
    where = f"{clean(finding.where)}: " if finding.where else ""
    message = f"{clean(finding.message, limit=LONGEST)} -> {clean(finding.advice, limit=LONGEST)}"
    return where + message


def _facts(report: Report) -> dict[str, object]:
    who = report.subject
    facts = {"source": who.source, "family": who.family, "sha256": who.sha256}
    keys = ("horizon", "seed", "level")
    return {**facts, **{key: report.settings[key] for key in keys if key in report.settings}}


def _case(kind: str, name: str) -> Element:
    # Nobody measures how long a rule takes; the time of the audit is that of the suite.
    return ElementTree.Element(
        "testcase", classname=f"memaudit.{kind}", name=clean(name), time="0.000"
    )


def _outcome(case: Element, tag: str, kind: str, message: str, text: str = "") -> None:
    made = ElementTree.SubElement(case, tag, message=message, type=clean(kind))
    made.text = text or message


def _skipped(case: Element, reason: str) -> Element:
    ElementTree.SubElement(case, "skipped", message=clean(reason, limit=LONGEST))
    return case


def _counts(suite: Element, seconds: float) -> dict[str, str]:
    cases = suite.findall("testcase")
    counts = {
        "tests": len(cases),
        "failures": sum(case.find("failure") is not None for case in cases),
        "errors": sum(case.find("error") is not None for case in cases),
        "skipped": sum(case.find("skipped") is not None for case in cases),
    }
    return {**{name: str(number) for name, number in counts.items()}, "time": f"{seconds:.3f}"}
