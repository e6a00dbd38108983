"""Starting the program: quickly, without torch, and in real processes with real pipes."""

from __future__ import annotations

import subprocess
import sys

import pytest

import memaudit
from memaudit.cli import main

RUN = "import sys; from memaudit.cli import main; code = main({words!r}); "
HEAVY = "print('heavy:', [n for n in ('torch', 'transformers', 'timm') if n in sys.modules])"


def python(program: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, **options
    )


@pytest.mark.parametrize(
    "words",
    [["--help"], ["--version"], ["scan", "--help"], ["list"], ["explain", "MA102"], ["scan", "x"]],
)
def test_torch_is_not_imported_for(words):
    done = python(RUN.format(words=words) + HEAVY)
    assert done.stdout.splitlines()[-1] == "heavy: []"


def test_the_version_is_the_packages(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"memaudit {memaudit.__version__}\n"


def test_flags_have_no_type_in_the_help(capsys):
    assert main(["scan", "--help"]) == 0
    assert "bool" not in capsys.readouterr().out.lower()
    assert main(["--help"]) == 0
    assert "bool" not in capsys.readouterr().out.lower()


def test_help_names_every_command(capsys):
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("scan", "list", "explain", "doctor", "MEMAUDIT_"))


def test_no_command_shows_the_help_but_is_no_success(capsys):
    assert main([]) == 2
    assert "Usage" in capsys.readouterr().out


def test_an_unknown_command_is_one_line(capsys):
    assert main(["scna"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert err.startswith("memaudit: error[E_ARGUMENT] No such command 'scna'")


def test_a_reader_who_leaves_is_no_error():
    program = RUN.format(words=["list"]) + "sys.exit(code)"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(timeout=60) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full")
def test_a_full_disk_behind_stdout_exits_with_five():
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", RUN.format(words=["explain", "MA102"]) + "sys.exit(code)"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert done.returncode == 5
    assert done.stderr.startswith("memaudit: error[E_DISK] stdout: cannot write: No space")
    assert done.stderr.count("\n") == 1
