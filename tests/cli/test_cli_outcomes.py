"""How a scan ends: errors, gates, interruptions, and what is on which stream."""

from __future__ import annotations

import io
import json
import sys
import warnings

import pytest

from memaudit.cli import files, main
from memaudit.errors import MachineError, SourceError
from memaudit.report import Report
from tests.cli.played import Interrupted, one_line
from tests.handmade import curve, of_kind, power_law, report


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SourceError("E_CORRUPT", "half a file", hint="fetch it again"), 3),
        (MachineError("E_MEMORY", "no room", hint="try --quick"), 5),
    ],
)
def test_an_error_is_one_line_with_the_source(run, stage, error, code):
    stage.answer = error
    got, out, err = run()
    assert (got, out) == (code, "")
    line = f"memaudit: error[{error.code}] demo:lstm: {error.fact}; {error.hint}"
    assert one_line(err) == line


def test_hostile_error_text_stays_on_one_line(run, stage):
    stage.answer = SourceError("E_CORRUPT", "a\nb\x1b[31m", hint="c\nd\u202e")
    line = one_line(run()[2])
    assert "\x1b" not in line
    assert "\u202e" not in line


def test_debug_shows_the_traceback_too(run, stage):
    stage.answer = SourceError("E_CORRUPT", "half a file")
    code, _, err = run("--debug")
    assert code == 3
    assert "Traceback" in err
    assert err.splitlines()[-1].startswith("memaudit: error[E_CORRUPT]")


@pytest.mark.parametrize("crash", [ZeroDivisionError("1/0"), SystemExit(1), AssertionError()])
def test_a_crash_never_looks_like_a_failed_gate(run, stage, crash):
    stage.answer = crash
    code, _, err = run()
    assert code == 70
    assert one_line(err).startswith(f"memaudit: error[E_INTERNAL] {type(crash).__name__}")
    assert err.endswith("run again with --debug and report it\n")


def test_too_little_memory_is_the_machines_fault(run, stage):
    stage.answer = MemoryError()
    code, _, err = run()
    assert code == 5
    assert "error[E_MEMORY]" in one_line(err)


def test_json_on_stdout_is_all_there_is(run, stage):
    stage.answer = report(power_law())
    code, out, err = run("--json", "-")
    assert (code, err) == (0, "")
    assert Report.from_dict(json.loads(out)).memory["heaviside"] == power_law()


def test_a_report_that_cannot_be_written_keeps_the_others(run, stage, tmp_path, monkeypatch):
    def vanish(source, **arguments):
        folder.rmdir()
        return report(curve())

    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.setattr(sys.modules["memaudit.audit"], "scan", vanish)
    words = ("--json", str(folder / "r.json"), "--report", f"terminal={tmp_path}/r.txt")
    code, out, err = run(*words)
    assert code == 5
    assert "error[E_DISK]" in one_line(err)
    assert out.startswith("memaudit demo:lstm")
    assert (tmp_path / "r.txt").exists()


@pytest.mark.parametrize(
    ("gate", "code"),
    [
        ("note", 1),
        ("warning", 1),
        ("error", 0),
        ("MA103", 1),
        ("ma103", 1),
        ("persistent-memory", 1),
        ("MA102", 0),
    ],
)
def test_a_gate_closes_at_its_level_or_above_or_at_its_code(run, stage, gate, code):
    stage.answer = report(of_kind("persistent"))  # MA103 is a warning
    got, out, err = run("--fail-on", gate)
    assert got == code
    assert out
    assert ("gate --fail-on" in err) == (code == 1)


def test_a_gate_beats_incomplete(run, stage):
    stage.answer = report(curve(), complete=False)
    assert run()[0] == 4
    assert run("--fail-on", "error")[0] == 4
    assert run("--fail-on", "MA001")[0] == 1


def test_an_interruption_keeps_the_partial_report(run, stage, tmp_path):
    stage.answer = Interrupted(report(curve(), complete=False))
    code, out, err = run("--json", str(tmp_path / "r.json"), "--fail-on", "note")
    assert code == 130
    assert out.startswith("PARTIAL REPORT")
    assert "interrupted" in one_line(err)
    assert not Report.load(tmp_path / "r.json").complete


def test_an_interruption_while_the_report_is_written_is_reported(run, stage, monkeypatch, tmp_path):
    def stop(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "write_text", stop)
    code, _, err = run("--json", str(tmp_path / "r.json"))
    assert code == 130
    assert one_line(err) == "memaudit: interrupted while the report was written"


def test_warnings_of_others_do_not_clutter(run, stage, monkeypatch):
    def noisy(source, **arguments):
        warnings.warn("torch says something", UserWarning, stacklevel=1)
        return report(curve())

    monkeypatch.setattr(sys.modules["memaudit.audit"], "scan", noisy)
    assert run()[2] == ""


def test_a_narrow_encoding_gets_an_ascii_report(stage, monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    assert main(["scan", "demo:lstm"]) == 0
    assert b"1e-02|" in raw.getvalue()
