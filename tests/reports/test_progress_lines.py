"""Progress in a log: silence for short work, a line now and then for long work, no bar."""

from __future__ import annotations

import sys
from io import StringIO

import pytest

from memaudit.reports import progress_lines
from memaudit.reports.progress import progress_bar
from memaudit.reports.progress_lines import ProgressLines


@pytest.fixture
def sheet():
    return StringIO()


def test_short_work_is_silent(clock, sheet):
    lines = ProgressLines(sheet, clock=clock)
    for done in range(10):
        lines.advance("heaviside", done, 10)
        clock.now += 0.9
    assert sheet.getvalue() == ""


def test_long_work_says_a_line_after_ten_seconds_and_then_every_thirty(clock, sheet):
    lines = ProgressLines(sheet, clock=clock)
    for done in range(101):
        lines.advance("heaviside", done, 100)
        clock.now += 1.0
    assert sheet.getvalue().splitlines() == [
        "memaudit: heaviside 10 %, about 90 s left",
        "memaudit: heaviside 40 %, about 60 s left",
        "memaudit: heaviside 70 %, about 30 s left",
    ]


def test_a_stage_counts_its_own_time(clock, sheet):
    lines = ProgressLines(sheet, clock=clock)
    lines.advance("opening", 0, 1)
    clock.now += 3600.0
    lines.advance("heaviside", 0, 4)
    clock.now += 40.0
    lines.advance("heaviside", 1, 4)
    assert sheet.getvalue().splitlines() == [
        "memaudit: heaviside 0 %",
        "memaudit: heaviside 25 %, about 2 min left",
    ]


def test_an_hour_is_told_in_hours(clock, sheet):
    lines = ProgressLines(sheet, clock=clock)
    lines.advance("heaviside", 0, 10)
    clock.now += 1800.0
    lines.advance("heaviside", 1, 10)
    assert sheet.getvalue().endswith("about 4.5 h left\n")


def test_foreign_stages_and_odd_totals_are_survived(clock, sheet):
    lines = ProgressLines(sheet, clock=clock)
    clock.now += 60.0
    lines.advance("a\x1b[31m\nb", 0, 0)
    assert sheet.getvalue() == ""
    lines.advance("a\x1b[31m\nb", 0, 2)
    assert sheet.getvalue() == "memaudit: a[31m b 0 %\n"


def test_a_stream_that_is_no_terminal_gets_lines_and_no_bar(monkeypatch, sheet):
    monkeypatch.setattr(sys, "stderr", sheet)
    monkeypatch.setattr(progress_lines, "FIRST", 0.0)
    with progress_bar(wanted=True) as advance:
        advance("heaviside", 0, 1)
    assert sheet.getvalue() == "memaudit: heaviside 0 %\n"


def test_whoever_wants_no_progress_gets_none(monkeypatch, sheet):
    monkeypatch.setattr(sys, "stderr", sheet)
    monkeypatch.setattr(progress_lines, "FIRST", 0.0)
    with progress_bar(wanted=False) as advance:
        advance("heaviside", 0, 1)
    assert sheet.getvalue() == ""
