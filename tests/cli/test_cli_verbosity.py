"""How much `memaudit scan` prints: a summary, one line, or the whole report."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from memaudit.writers.terminal import Terminal, brief, one_line, plain_text
from tests.cli.played import one_line as line_of
from tests.handmade import curve, report


def test_a_scan_prints_a_summary_of_80_columns_where_the_width_is_unknown(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "33")
    code, out, err = run()
    assert (code, err) == (0, "")
    assert out == plain_text(brief(report(curve()).document(), wrap=True))


@pytest.mark.parametrize("words", [[], ["-v"]], ids=["summary", "all"])
def test_a_terminal_of_20_columns_is_written_on_as_one_of_40(run, monkeypatch, words):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    sheets = []
    for columns in ("20", "40"):
        monkeypatch.setenv("COLUMNS", columns)
        sheets.append(re.sub(r"\x1b\[[\d;]*m", "", run(*words)[1]))
    assert sheets[0] == sheets[1]
    assert "heaviside" in sheets[0]
    assert 30 < max(map(len, sheets[0].splitlines())) <= 40


def test_forced_colours_in_a_log_change_no_letter(run, monkeypatch):
    plain = run()[1]
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("LINES", "10")
    coloured = run()[1]
    assert "\x1b[" in coloured
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line).rstrip() for line in coloured.splitlines()]
    assert lines == plain.splitlines()


@pytest.mark.parametrize("option", ["--verbose", "-v"])
def test_verbose_prints_the_whole_report(run, option):
    code, out, err = run(option)
    assert (code, err) == (0, "")
    assert out == Terminal().render(report(curve()))


@pytest.mark.parametrize("option", ["--quiet", "-q"])
def test_quiet_prints_the_verdict_in_one_line(run, option):
    code, out, err = run(option)
    assert (code, err) == (0, "")
    first = "demo:lstm: Remembers 139 steps (query heaviside)"
    assert out == f"{first}; heaviside exponential, horizon 139; no findings\n"


def test_a_quiet_scan_that_is_incomplete_says_so_and_exits_with_four(run, stage):
    error = {"code": "E_MEMORY", "stage": "impulse", "message": "no room", "hint": "try --quick"}
    made = replace(report(curve()), complete=False, errors=(error,))
    stage.answer = made
    code, out, err = run("--quiet")
    assert code == 4
    assert out.startswith("demo:lstm: partial report; Remembers 139 steps (query heaviside); heav")
    assert "error[E_MEMORY] no room; try --quick" in err
    assert one_line(made).count("\n") == 0


def test_quiet_and_verbose_contradict_each_other(run, stage):
    code, out, err = run("--quiet", "--verbose")
    assert (code, out, stage.calls) == (2, "", [])
    assert "--quiet and --verbose contradict each other; give one of them" in line_of(err)
