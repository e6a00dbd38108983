"""Processes that are killed, stopped or in each other's way: no report is ever torn."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

import memaudit
from memaudit import faults
from memaudit.report_files import write_text
from tests.processes import FOREGROUND

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")

#: Writes one text over and over, and then a file that tells that it could.
WRITER = """
import sys
from pathlib import Path
from memaudit.report_files import write_text
letter, times = sys.argv[1], int(sys.argv[2])
for _ in range(times):
    write_text(letter * 300_000, "report.json")
Path(letter).touch()
"""
PROGRAM = f"""{FOREGROUND}
from memaudit.cli import main
sys.exit(main(["scan", "demo:lstm", "--quick", "--horizon", "64", "--json", "report.json"]))
"""
#: The first terminal that the leader of a session opens becomes its own.
ON_TERMINAL = "import os; os.open(os.ttyname(2), os.O_RDWR)\n"


def surroundings(plan: str) -> dict[str, str]:
    """The environment of a process that has something planned for it."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("MEMAUDIT_")}
    return {**kept, faults.VARIABLE: plan, "OMP_NUM_THREADS": "1"}


def python(program: str, *words: str, plan: str = "nowhere=kill", **options) -> subprocess.Popen:
    """A Python process with something planned for it."""
    return subprocess.Popen(
        [sys.executable, "-c", program, *words], env=surroundings(plan), **options
    )


@pytest.mark.parametrize(
    ("step", "new"), [("write.opened", False), ("write.flushed", False), ("write.replaced", True)]
)
def test_a_killed_writer_leaves_a_whole_report(step, new, tmp_path):
    path = write_text("old", tmp_path / "report.json")
    with python(WRITER, "a", "1", plan=f"{step}=kill", cwd=tmp_path) as writer:
        assert writer.wait() == -signal.SIGKILL
    assert path.read_text() == ("a" * 300_000 if new else "old")
    assert len(list(tmp_path.glob(".memaudit-*.tmp"))) == (not new)
    assert write_text("newest", path).read_text() == "newest"


def test_writers_at_the_same_time_never_tear_a_report_and_never_fail(tmp_path):
    path = write_text("a" * 300_000, tmp_path / "report.json")
    writers = [python(WRITER, letter, "50", cwd=tmp_path) for letter in "abcd"]
    seen = set()
    while any(writer.poll() is None for writer in writers):
        text = path.read_text()
        seen.add((text[0], len(text), len(set(text))))
    assert seen <= {(letter, 300_000, 1) for letter in "abcd"}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b", "c", "d", "report.json"]


@pytest.fixture(scope="module")
def passes() -> int:
    """How often the model is run in this audit; the last time is for the queries."""
    before, faults._reached = faults._reached, Counter()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(faults.VARIABLE, "nowhere=kill")
        memaudit.scan("demo:lstm", horizon=64, level="quick")
        count = faults._reached["measure.pass"]
    faults._reached = before
    return count


@pytest.mark.parametrize("action", ["interrupt", "terminate", "hangup"])
def test_a_finished_audit_is_still_written_when_a_signal_comes_meanwhile(action, tmp_path):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    scan = python(PROGRAM, plan=f"write.flushed={action}", cwd=tmp_path, **pipes)
    _, said = scan.communicate()
    assert scan.returncode == 128 + getattr(signal, faults.SIGNALS[action])
    *before, last = said.splitlines()
    assert last == "memaudit: interrupted while the report was written"
    # A slow machine shows its progress before that, and nothing else is said.
    assert all(re.fullmatch(r"memaudit: [a-z-]+ \d+ %(, about .+ left)?", line) for line in before)
    assert json.loads((tmp_path / "report.json").read_text())["complete"] is True
    assert os.listdir(tmp_path) == ["report.json"]


def shown_on(terminal: int, words: bytes) -> bool:
    """Whether these words appear on a terminal before its last writer ends."""
    seen = b""
    with suppress(OSError):
        while words not in seen:
            seen += os.read(terminal, 4096)
    return words in seen


@pytest.mark.skipif(sys.platform != "linux", reason="terminals of other systems hang up otherwise")
def test_a_terminal_that_is_closed_meanwhile_does_not_cost_what_was_measured(
    passes: int, tmp_path: Path
):
    terminal, inner = os.openpty()
    streams = {"stdin": inner, "stdout": inner, "stderr": inner, "start_new_session": True}
    plan = f"measure.pass:{passes}=hang"
    scan = python(ON_TERMINAL + PROGRAM, plan=plan, cwd=tmp_path, **streams)
    os.close(inner)
    try:
        assert shown_on(terminal, b"memory")
        os.close(terminal)
        assert scan.wait() == 128 + signal.SIGHUP
    finally:
        scan.kill()
        scan.wait()
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["complete"] is False
    assert report["results"]["assumptions"]
    assert os.listdir(tmp_path) == ["report.json"]
