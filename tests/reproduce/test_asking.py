"""The runner refuses in one line what cannot be done, before it does anything."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from examples.reproduce import __main__ as runner
from examples.reproduce.__main__ import main
from examples.reproduce.row import MEANINGS


@pytest.fixture
def idle(monkeypatch):
    """Rows that must not be run."""

    def run(*given, **options):
        raise AssertionError("a row was run")

    monkeypatch.setattr(runner, "run_row", run)
    monkeypatch.setattr(runner, "run_rows", run)


def said(capsys) -> str:
    """The one line on stderr."""
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_a_file_for_a_folder_is_refused(idle, tmp_path, capsys):
    (tmp_path / "x").write_text("")
    assert main(["V-1", "--out", str(tmp_path / "x")]) == 2
    assert said(capsys) == f"reproduce: --out: {tmp_path / 'x'} is a file; name a folder"
    assert main(["V-1", "--out", str(tmp_path / "x" / "y")]) == 2
    assert "cannot be written: Not a directory" in said(capsys)


@pytest.mark.parametrize(
    "words", [["--jobs", "0"], ["--seed", "-1"], ["--seed", "x"], ["--seed", "9" * 30], ["--no"]]
)
def test_bad_options_are_one_line(idle, words, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["V-1", *words])
    assert stop.value.code == 2
    assert said(capsys).startswith("reproduce: ")


def test_nothing_asked_and_unknown_rows_are_one_line(idle, capsys):
    assert main([]) == 2
    assert said(capsys) == "reproduce: name rows, or give --all, --list or --page"
    assert main(["I-F99"]) == 2
    assert "did you mean I-F9, I-T1; " in said(capsys)


def test_the_help_shows_defaults_aliases_and_what_the_verdicts_mean(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "seed of every row (default: 0)" in text
    assert f"(default: the cores, {os.cpu_count()})" in text
    assert "I-F10 for I-F10a-h" in text
    for word, means in MEANINGS.items():
        assert f"{word}: {means}" in text


def test_a_reader_that_leaves_is_no_error():
    code = "import sys; from examples.reproduce import __main__ as m, catalog; "
    code += "m.listed = lambda: 'line\\n' * 100000; sys.exit(m.main(['--list']))"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as made:
        assert made.stdout is not None
        assert made.stderr is not None
        made.stdout.readline()
        made.stdout.close()
        assert made.stderr.read() == b""
    assert made.returncode == 0
