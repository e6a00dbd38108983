"""The progress bar: an estimate from the first pass on, one line, and none where nobody looks."""

from __future__ import annotations

import sys
from io import StringIO

import pytest
from rich.console import Console

from memaudit.reports.progress import Forgiving, progress_bar
from memaudit.reports.stage_bar import StageBar


@pytest.fixture
def bar(clock):
    return StageBar(Console(file=StringIO(), width=100), clock=clock)


def line(bar: StageBar) -> str:
    sheet = Console(width=100)
    with sheet.capture() as captured:
        sheet.print(bar.drawn.get_renderable())
    return captured.get()


def test_one_pass_is_enough_for_an_estimate(bar, clock):
    bar.advance("heaviside", 0, 10)
    assert "left -:--:--" in line(bar)
    clock.now += 20.0
    bar.advance("heaviside", 1, 10)
    assert "left 0:03:00" in line(bar)  # nine more of 20 seconds
    clock.now += 5.0
    assert "left 0:02:55" in line(bar)


def test_an_estimate_that_is_used_up_stays_at_zero(bar, clock):
    bar.advance("heaviside", 0, 2)
    clock.now += 1.0
    bar.advance("heaviside", 1, 2)
    clock.now += 9.0
    assert "left 0:00:00" in line(bar)


def test_only_the_present_stage_is_shown(bar):
    bar.advance("starting", 0, 1)
    bar.advance("heaviside", 0, 10)
    assert "starting" not in line(bar)
    assert "heaviside" in line(bar)


def test_a_stage_that_begins_again_counts_anew(bar, clock):
    bar.advance("heaviside", 0, 2)
    clock.now += 1000.0
    bar.advance("heaviside", 2, 2)
    bar.advance("heaviside", 0, 2)
    clock.now += 2.0
    bar.advance("heaviside", 1, 2)
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
    open_one = Forgiving(sheet)
    assert open_one.write("abc") == 3
    open_one.flush()
    assert sheet.getvalue() == "abc"
    assert open_one.isatty() is False
