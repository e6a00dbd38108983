"""The top of the page: which query the sentence names, which findings and gates are told there."""

from __future__ import annotations

import re

from memaudit.memory.result import Status
from memaudit.report import Finding, GateResult
from memaudit.reports.page.verdict import hit_gates, sentence, worst
from tests.handmade import curve, report


def notes(count: int) -> tuple[Finding, ...]:
    return tuple(finding(f"MA3{k:02}", "note", f"message {k}") for k in range(count))


def finding(code: str, severity: str, message: str) -> Finding:
    return Finding(code, "a-name", severity, message, "an advice")


def plain(markup: str) -> str:
    return " ".join(re.sub("<[^>]*>", "", markup).split())


def test_of_queries_that_reach_equally_far_one_without_a_caveat_is_named():
    unsettled = curve("reversed", status=Status.UNSETTLED, half_life=99.0)
    told = plain(sentence(report(unsettled, curve("impulse"))))
    assert told.endswith("(query impulse).")


def test_few_findings_are_all_told_at_the_top():
    told = worst(report(curve(), findings=notes(5)))
    assert "5 notes" in told
    assert [f"message {k}" in told for k in range(5)] == [True] * 5
    assert "more below" not in told


def test_of_many_findings_the_gravest_are_told_and_the_rest_is_counted():
    grave = finding("MA101", "warning", "the warning")
    told = worst(report(curve(), findings=(*notes(6), grave)))
    assert "the warning" in told
    assert "message" not in told
    assert '<a href="#findings">6 more below</a>' in told


def test_gates_that_were_hit_are_told_at_the_top():
    gates = [GateResult(f"g{k}", hit=k > 0, told="x") for k in range(6)]
    assert plain(hit_gates(gates) or "") == "5 gates were hit: g1, g2, g3 and 2 more"
    assert plain(hit_gates(gates[:2]) or "") == "1 gate was hit: g1"
    assert hit_gates(gates[:1]) is None
