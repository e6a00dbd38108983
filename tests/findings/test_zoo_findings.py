"""Findings that models of the zoos give rise to, and those that they must not."""

from __future__ import annotations

from memaudit.findings.judge import judge
from tests.findings.test_finding_rules import silent
from tests.handmade import curve, identity, of_kind, report


def test_a_head_that_was_not_run_is_worth_a_note_only():
    (finding,) = judge(report(curve(), subject=identity(coverage=0.95)))
    assert (finding.code, finding.severity) == ("MA002", "note")


def test_one_silent_query_of_two_is_not_the_fault_of_silence():
    found = judge(report(silent("reversed"), of_kind("persistent", "impulse"), curve()))
    assert "MA114" not in {finding.code for finding in found}


def test_a_repetition_that_saturates_is_no_short_context():
    short = report(curve("repeat", horizon=10), subject=identity(context=2048))
    assert "MA113" not in {finding.code for finding in judge(short)}
