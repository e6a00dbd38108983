"""Progress: a bar with an estimate on a terminal; in a log a line now and then, or nothing."""

from __future__ import annotations

import sys
from io import StringIO

import pytest
from rich.console import Console

from memaudit.writers import progress
from memaudit.writers.progress import IgnoringErrors, ProgressLines, StageBar, progress_bar


@pytest.fixture
def sheet():
    return StringIO()


def test_short_work_prints_nothing(clock, sheet):
    lines = ProgressLines(sheet, clock=clock)
    for done in range(10):
        lines("heaviside", done, 10)
        clock.now += 0.9
    assert sheet.getvalue() == ""


def test_long_work_says_a_line_after_ten_seconds_and_then_every_thirty(clock, sheet):
    lines = ProgressLines(sheet, clock=clock)
    for done in range(101):
        lines("heaviside", done, 100)
        clock.now += 1.0
    assert sheet.getvalue().splitlines() == [
        "memaudit: heaviside 10 %, about 90 s left",
        "memaudit: heaviside 40 %, about 60 s left",
        "memaudit: heaviside 70 %, about 30 s left",
    ]


def test_a_stage_counts_its_own_time(clock, sheet):
    lines = ProgressLines(sheet, clock=clock)
    lines("opening", 0, 1)
    clock.now += 3600.0
    lines("heaviside", 0, 4)
    clock.now += 40.0
    lines("heaviside", 1, 4)
    assert sheet.getvalue().splitlines() == [
        "memaudit: heaviside 0 %",
        "memaudit: heaviside 25 %, about 2 min left",
    ]


def test_an_hour_is_shown_in_hours(clock, sheet):
    lines = ProgressLines(sheet, clock=clock)
    lines("heaviside", 0, 10)
    clock.now += 1800.0
    lines("heaviside", 1, 10)
    assert sheet.getvalue().endswith("about 4.5 h left\n")


def test_foreign_stages_and_odd_totals_are_survived(clock, sheet):
    lines = ProgressLines(sheet, clock=clock)
    clock.now += 60.0
    lines("a\x1b[31m\nb", 0, 0)
    assert sheet.getvalue() == ""
    lines("a\x1b[31m\nb", 0, 2)
    assert sheet.getvalue() == "memaudit: a[31m b 0 %\n"


def test_a_stream_that_is_no_terminal_gets_lines_and_no_bar(monkeypatch, sheet):
    monkeypatch.setattr(sys, "stderr", sheet)
    monkeypatch.setattr(progress, "FIRST", 0.0)
    with progress_bar(wanted=True) as advance:
        advance("heaviside", 0, 1)
    assert sheet.getvalue() == "memaudit: heaviside 0 %\n"


def test_whoever_wants_no_progress_gets_none(monkeypatch, sheet):
    monkeypatch.setattr(sys, "stderr", sheet)
    monkeypatch.setattr(progress, "FIRST", 0.0)
    with progress_bar(wanted=False) as advance:
        advance("heaviside", 0, 1)
    assert sheet.getvalue() == ""


@pytest.fixture
def bar(clock):
    return StageBar(Console(file=StringIO(), width=100), clock=clock)


def line(bar: StageBar) -> str:
    sheet = Console(width=100)
    with sheet.capture() as captured:
        sheet.print(bar.drawn.get_renderable())
    return captured.get()


def test_one_pass_is_enough_for_an_estimate(bar, clock):
    bar("heaviside", 0, 10)
    assert "left -:--:--" in line(bar)
    clock.now += 20.0
    bar("heaviside", 1, 10)
    assert "left 0:03:00" in line(bar)  # nine more of 20 seconds
    clock.now += 5.0
    assert "left 0:02:55" in line(bar)


def test_an_estimate_that_is_used_up_stays_at_zero(bar, clock):
    bar("heaviside", 0, 2)
    clock.now += 1.0
    bar("heaviside", 1, 2)
    clock.now += 9.0
    assert "left 0:00:00" in line(bar)


def test_only_the_present_stage_is_shown(bar):
    bar("starting", 0, 1)
    bar("heaviside", 0, 10)
    assert "starting" not in line(bar)
    assert "heaviside" in line(bar)


def test_a_stage_that_begins_again_counts_anew(bar, clock):
    bar("heaviside", 0, 2)
    clock.now += 1000.0
    bar("heaviside", 2, 2)
    bar("heaviside", 0, 2)
    clock.now += 2.0
    bar("heaviside", 1, 2)
    assert line(bar).count("heaviside") == 1
    assert "left 0:00:02" in line(bar)


def test_without_stderr_there_is_no_bar(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    with progress_bar(wanted=True) as advance:
        advance("heaviside", 1, 2)


class HungUp(StringIO):
    """A terminal that was closed: everything but asking for its kind fails."""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        raise OSError(5, "Input/output error")

    def flush(self) -> None:
        raise OSError(5, "Input/output error")


def test_a_terminal_that_is_closed_meanwhile_does_not_end_the_audit(monkeypatch):
    monkeypatch.setattr(sys, "stderr", HungUp())
    with progress_bar(wanted=True) as advance:
        advance("heaviside", 1, 2)
        advance("heaviside", 2, 2)


def test_an_open_terminal_gets_everything():
    sheet = StringIO()
    open_one = IgnoringErrors(sheet)
    assert open_one.write("abc") == 3
    open_one.flush()
    assert sheet.getvalue() == "abc"
    assert open_one.isatty() is False
