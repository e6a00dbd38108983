"""Annotations of a GitHub workflow: exact lines, and commands that no name can forge."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from memaudit.reports.github import Github, annotation
from memaudit.rules import judge
from tests.handmade import curve, identity, report
from tests.reports.samples_told import cut_short, told

VERDICT = (
    "heaviside exponential, horizon 139; impulse polynomial, horizon > 512; 2 warnings, 1 note"
)
FINDINGS = """\
::warning title=MA201 near-boundary at cell.0::100%25 of it, at a: b -> train it, then
::warning title=MA201 near-boundary at cell.1::less of it -> train it, then
::notice title=MA105 supremum-at-edge::still rising -> try others
"""


def test_gates_come_first_and_the_verdict_last():
    assert Github().render(told()) == (
        "::error title=memaudit gate horizon<200::hit by horizon = 139 at heaviside\n"
        f"{FINDINGS}::notice title=memaudit demo%3Alstm::{VERDICT}\n"
    )


def test_what_went_wrong_is_an_error():
    lines = Github().render(cut_short()).splitlines()
    assert lines[0] == "::error title=memaudit E_MEMORY::no room; --quick"
    assert lines[1].startswith("::warning title=memaudit::PARTIAL REPORT: ")


def test_no_advice_points_at_what_stands_below():
    who = identity(assumed={"pool": "none (not stored in the file)"})
    made = report(curve(), subject=who)
    text = Github().render(replace(made, findings=tuple(judge(made))))
    assert "MA003" in text
    assert not re.search(r"\b(see|settings|table|listed) (below|above)\b", text)


def test_an_error_without_a_hint_ends_where_it_ends():
    error = {"code": "E_X", "stage": "load", "message": "no room", "hint": ""}
    text = Github().render(replace(report(), errors=(error,)))
    assert text.startswith("::error title=memaudit E_X::no room\n")


def test_an_empty_report_is_a_verdict():
    assert Github().render(report()) == "::notice title=memaudit demo%3Alstm::no findings\n"


@pytest.mark.parametrize(
    ("title", "message", "line"),
    [
        ("a,b:c%d", "a,b:c%d", "::error title=a%2Cb%3Ac%25d::a,b:c%25d"),
        ("x::y", "x::warning::y", "::error title=x%3A %3Ay::x: :warning: :y"),
        ("a\nb", "a\r\n::error::forged", "::error title=a b::a : :error: :forged"),
        ("%0A", "%0A::error::forged", "::error title=%250A::%250A: :error: :forged"),
        ("\x1b[31m\u202e", "\x1b]8;;\x07", "::error title=[31m::]8;;"),
    ],
)
def test_foreign_text_is_escaped(title, message, line):
    assert annotation("error", title, message) == line
