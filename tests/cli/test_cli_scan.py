"""`memaudit scan` with an audit played by hand: arguments, outputs, gates, exit codes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from memaudit.cli import main
from memaudit.errors import ArgumentError
from memaudit.loading.source import parse_source
from tests.cli.played import one_line


def test_a_clean_scan_prints_the_report_and_exits_with_zero(run):
    code, out, err = run()
    assert (code, err) == (0, "")
    assert out.startswith("memaudit demo:lstm\n")
    assert "exponential" in out


def test_every_option_reaches_the_audit(run, stage):
    run("--horizon", "64", "--query", "impulse", "--query", "heaviside", "--probe", "assumptions")
    choice = ("--adapter", "rnn", "--device", "cpu", "--dtype", "float64", "--revision", "main")
    run(*choice, source="org/name")
    run("--seed", "7", "--thorough", "--set", "hidden-size=3", "--set", "mode=tanh")
    first, second, third = stage.calls
    assert (first["horizon"], first["level"]) == (64, "standard")
    assert first["queries"] == ["impulse", "heaviside"]
    assert first["probes"] == ["assumptions"]
    words = ("adapter", "device", "dtype", "revision")
    assert [second[word] for word in words] == ["rnn", "cpu", "float64", "main"]
    assert second["queries"] is None
    assert (third["seed"], third["level"]) == (7, "thorough")
    assert (third["hidden_size"], third["mode"]) == (3, "tanh")


def test_underscores_in_options_are_dashes(run, stage):
    assert run("--fail_on", "error", "--no_progress")[0] == 0


def test_environment_variables_stand_for_options(run, stage, monkeypatch, tmp_path):
    monkeypatch.setenv("MEMAUDIT_HORIZON", "99")
    monkeypatch.setenv("MEMAUDIT_QUERY", "impulse reversed")
    monkeypatch.setenv("MEMAUDIT_QUICK", "1")
    monkeypatch.setenv("MEMAUDIT_JSON", str(tmp_path / "r.json"))
    assert run()[0] == 0
    (call,) = stage.calls
    assert (call["horizon"], call["level"]) == (99, "quick")
    assert call["queries"] == ["impulse", "reversed"]
    assert (tmp_path / "r.json").exists()


def test_offline_is_set_before_the_audit(run, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("TRANSFORMERS_OFFLINE", "0")
    run("--offline")
    assert os.environ["HF_HUB_OFFLINE"] == "1"


@pytest.mark.parametrize(
    ("words", "fact"),
    [
        (["--quick", "--thorough"], "contradict"),
        (["--query", "heavyside"], "did you mean heaviside?"),
        (["--probe", "assumption"], "did you mean assumptions?"),
        (["--adapter", "rn"], "did you mean rnn?"),
        (["--report", "pdf=x"], "unknown report 'pdf'; known are: figure, github, "),
        (["--report", "json"], "--report wants NAME=FILE"),
        (["--device", "gpu"], "unknown device 'gpu'"),
        (["--device", "cuda:x"], "unknown device"),
        (["--dtype", "float63"], "unknown dtype"),
        (["--horizon", "7"], "--horizon"),
        (["--horizon", "1048577"], "--horizon"),
        (["--horizon", "many"], "--horizon"),
        (["--seed", "-1"], "--seed"),
        (["--seed", "9223372036854775808"], "--seed"),
        (["--fail-on", "warnings"], "did you mean warning"),
        (["--fail-on", "MA999"], "no level or finding 'MA999'"),
        (["--set", "hidden"], "--set wants KEY=VALUE"),
        (["--set", "=3"], "--set wants KEY=VALUE"),
        (["--set", "horizon=3"], "use --horizon"),
        (["--set", "a-b=1", "--set", "a_b=2"], "names a_b twice"),
        (["--json", "/no/such/folder/r.json"], "does not exist"),
        (["--json", "/"], "this names a folder"),
        (["--json", os.devnull], "not a regular file"),
        (["--json", ""], "empty file name"),
        (["--json", "a" * 300], "File name too long; choose a shorter name"),
        (["--json", "a" * 300 + "/r.json"], "File name too long"),
        (["--report", "terminal=~nobody-of-that-name/r.txt"], "write the whole path"),
        (["--json", "-", "--report", "terminal=-"], "two reports go to stdout"),
        (["--json", "x.json", "--report", "json=./x.json"], "two reports go to x.json"),
        (["--no-such-option"], "No such option"),
    ],
)
def test_bad_arguments_exit_with_two_before_any_work(run, stage, words, fact):
    code, out, err = run(*words)
    assert (code, out, stage.calls) == (2, "", [])
    assert one_line(err).startswith("memaudit: error[E_ARGUMENT] ")
    assert fact in err


@pytest.mark.parametrize("source", ["", " ", "\t\n"])
def test_an_empty_source_is_not_the_current_folder(run, stage, source):
    code, out, err = run(source=source)
    assert (code, out, stage.calls) == (2, "", [])
    assert "the source is empty" in one_line(err)
    with pytest.raises(ArgumentError):
        parse_source(source)


def test_a_home_of_nobody_is_a_missing_file(run, stage):
    code, _, err = run(source="~nobody-of-that-name/model.pt")
    assert (code, stage.calls) == (3, [])
    assert "error[E_NOT_FOUND]" in one_line(err)


def test_a_missing_source_points_to_the_help_of_the_command(capsys):
    assert main(["scan"]) == 2
    assert one_line(capsys.readouterr().err).endswith("; see memaudit scan --help")


def test_a_bad_variable_is_named(run, stage, monkeypatch):
    monkeypatch.setenv("MEMAUDIT_HORIZON", "abc")
    code, _, err = run()
    assert (code, stage.calls) == (2, [])
    assert "from the environment variable MEMAUDIT_HORIZON" in one_line(err)
    assert "environment" not in run("--horizon", "abc")[2]


@pytest.mark.parametrize(
    "setting", ["normalization=[1]", 'level=["quick"]', "amplitudes=[1e308]", "epsilon=[1]"]
)
def test_a_setting_of_the_wrong_type_exits_with_two(capsys, setting):
    assert main(["scan", "demo:lstm", "--set", setting]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert one_line(err).startswith("memaudit: error[E_ARGUMENT] ")


def test_a_missing_file_exits_with_three_before_any_work(run, stage):
    code, out, err = run(source="nowhere.pt")
    assert (code, out, stage.calls) == (3, "", [])
    assert one_line(err).startswith("memaudit: error[E_NOT_FOUND] nowhere.pt: no such file")


def test_a_folder_that_may_not_be_searched_is_the_machines_fault(run, stage, monkeypatch, tmp_path):
    def forbidden(path, **arguments):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "exists", forbidden)
    code, _, err = run("--json", str(tmp_path / "r.json"))
    assert (code, stage.calls) == (5, [])
    assert "error[E_DISK]" in one_line(err)
    assert "Permission denied" in err


def test_an_unwritable_folder_is_the_disks_fault_and_found_before_any_work(
    run, stage, monkeypatch, tmp_path
):
    import tempfile

    def full(**arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", full)
    code, _, err = run("--json", str(tmp_path / "r.json"))
    assert (code, stage.calls) == (5, [])
    assert "error[E_DISK]" in one_line(err)


@pytest.mark.parametrize("command", ["scan", "retrofit"])
def test_the_help_keeps_its_brackets(command, capsys):
    assert main([command, "--help"]) == 0
    assert "org/name[@revision]" in capsys.readouterr().out
