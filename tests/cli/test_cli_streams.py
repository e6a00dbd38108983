"""Closed streams, full disks and Ctrl-C, in real processes."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a POSIX shell, /dev/full")

#: The command line with an audit that is played, so that no model has to run.
PLAYED = """
import sys, types
from tests.cli.played import Interrupted, Stage
from tests.reports.handmade import of_kind, report
stage = Stage()
stage.answer = report(of_kind("persistent"))
module = types.ModuleType("memaudit.audit")
module.scan, module.Interrupted = stage.scan, Interrupted
import memaudit
memaudit.audit = sys.modules["memaudit.audit"] = module
from memaudit.cli import main
sys.exit(main(sys.argv[1:]))
"""

#: Ctrl-C at the moment when a module is looked for.
STOPPED = """
import sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Finder())
from memaudit.cli import main
sys.exit(main(["scan", "demo:lstm"]))
"""

#: Loaded with the commands, by the command, and by the audit.
LOADED = ["typer", "memaudit.cli.scanning", "torch.nn"]


def shell(arguments: str, redirection: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        ["sh", "-c", f'"$0" -c "$1" {arguments} {redirection}', sys.executable, PLAYED],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_an_error_without_stderr_does_not_go_to_stdout():
    done = shell("scan nowhere.pt", "2>&-")
    assert (done.returncode, done.stdout) == (3, "")


def test_a_gate_without_stderr_leaves_stdout_to_the_report():
    done = shell("scan demo:lstm --json - --fail-on warning", "2>&-")
    assert done.returncode == 1
    assert done.stdout.startswith("{")
    assert done.stdout.endswith("}\n")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("scan demo:lstm", 0),
        ("scan demo:lstm --json -", 0),
        ("scan demo:lstm --fail-on warning", 1),
        ("scan nowhere.pt", 3),
        ("list reports", 0),
        ("--help", 0),
    ],
)
def test_without_stdout_the_exit_code_is_kept(arguments, code):
    done = shell(arguments, ">&-")
    assert done.returncode == code
    assert done.stderr.count("\n") == (code != 0)


def test_without_any_stream_the_exit_code_is_kept():
    assert shell("scan demo:lstm --fail-on warning", "<&- >&- 2>&-").returncode == 1


@pytest.mark.parametrize("arguments", ["scan demo:lstm", "scan demo:lstm --json -", "--help"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_behind_stdout_exits_with_five(arguments, unbuffered, monkeypatch):
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    done = shell(arguments, ">/dev/full")
    assert done.returncode == 5
    assert done.stderr.startswith("memaudit: error[E_DISK] ")
    assert "No space left" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("module", LOADED)
def test_ctrl_c_while_the_program_loads_is_one_line(module):
    done = subprocess.run(
        [sys.executable, "-c", STOPPED, module], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "memaudit: interrupted before anything was measured\n"
