"""`memaudit scan`: arguments, settings and the files that it writes."""

from __future__ import annotations

import contextlib
import json
import os
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memaudit.cli import main
from memaudit.errors import ArgumentError
from memaudit.options import parse_settings, parse_value
from memaudit.writers.markdown import Markdown
from tests.cli.played import one_line
from tests.handmade import of_kind, report


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
        (["--json", "."], "not a regular file"),
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


def test_an_unwritable_folder_is_the_disks_fault_and_found_before_any_work(
    run, stage, monkeypatch, tmp_path
):
    import tempfile

    def full(**arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    code, _, err = run("--json", str(tmp_path / "r.json"))
    assert (code, stage.calls) == (5, [])
    assert "error[E_DISK]" in one_line(err)


@pytest.mark.parametrize("command", ["scan", "retrofit"])
def test_the_help_keeps_its_brackets(command, capsys):
    assert main([command, "--help"]) == 0
    assert "org/name[@revision]" in capsys.readouterr().out


# `--set KEY=VALUE`: JSON where it is JSON, a plain string everywhere else.


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-2.5e-3", -0.0025),
        ("true", True),
        ("null", None),
        ("[1, 2]", [1, 2]),
        ('"3"', "3"),
        ("tanh", "tanh"),
        ("True", "True"),
        ("", ""),
        ("a=b", "a=b"),
        ("NaN", "NaN"),
        ("-Infinity", "-Infinity"),
        ('{"a": 1}', '{"a": 1}'),
        ("[1,", "[1,"),
        ("9" * 5000, "9" * 5000),
        ("[" * 100_000, "[" * 100_000),
    ],
)
def test_a_value_is_json_or_itself(text, value):
    assert parse_value(text) == value
    assert type(parse_value(text)) is type(value)


def test_only_the_first_equals_sign_separates():
    assert parse_settings(["a-b=c=d", "x = 1"]) == {"a_b": "c=d", "x": 1}


@given(st.text())
def test_any_text_is_parsed_or_refused(text):
    with contextlib.suppress(ArgumentError):
        assert len(parse_settings([text])) == 1


# Formats that a scan writes beside its page: by an option of their own, or by `--report`.


def test_a_section_for_a_model_card_goes_to_its_file(run, stage, tmp_path):
    path = tmp_path / "card.md"
    code, out, _ = run("--markdown", str(path))
    assert code == 0
    assert out.startswith("memaudit demo:lstm")
    assert path.read_text() == Markdown().render(stage.answer)


@pytest.mark.parametrize("option", ["-o", "--output-path", "--output_path"])
def test_results_for_evaluation_pipelines_go_to_exactly_that_file(run, stage, tmp_path, option):
    path = tmp_path / "x.json"
    assert run(option, str(path))[0] == 0
    assert json.loads(path.read_text())["results"]["memaudit"]["horizon,none"] == 139.0
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]


@pytest.mark.parametrize("option", ["-o", "--json", "--html", "--markdown"])
def test_a_folder_is_no_file_to_write_to(run, stage, tmp_path, option):
    for word in (f"{tmp_path}/new/", f"{tmp_path}/"):
        code, out, err = run(option, word)
        assert (code, out, stage.calls) == (2, "", [])
        assert f"{word}: this names a folder; name a file in it, as in {word}report" in err
    assert run(option, str(tmp_path))[0] == 2
    assert list(tmp_path.iterdir()) == []


def test_annotations_name_the_gate_that_was_hit(run, stage):
    stage.answer = report(of_kind("persistent"))
    code, out, err = run("--report", "github=-", "--fail-on", "warning")
    assert code == 1
    assert one_line(err).endswith("was hit by MA103 persistent-memory")
    lines = out.splitlines()
    assert lines[0] == "::error title=memaudit gate warning::hit by MA103 persistent-memory"
    assert lines[1].startswith("::warning title=MA103 persistent-memory::")


def test_a_gate_is_a_test_case(run, stage, tmp_path):
    path = tmp_path / "junit.xml"
    assert run("--report", f"junit={path}", "--fail-on", "horizon<200")[0] == 1
    cases = {c.get("name"): c for c in ElementTree.parse(path).iter("testcase")}
    failure = cases["horizon<200"].find("failure")
    assert failure is not None
    assert failure.get("message") == "hit by horizon = 139 at heaviside"


def test_two_formats_for_one_file_are_refused(run, stage, tmp_path):
    path = str(tmp_path / "x")
    code, _, err = run("--markdown", path, "-o", path)
    assert (code, stage.calls) == (2, [])
    assert "two reports go to" in one_line(err)


def test_a_text_is_a_file_and_a_missing_one_is_an_error(tmp_path, capsys):
    text = tmp_path / "book.txt"
    text.write_text("the cat sat on the mat and ate the rat " * 40)
    words = ["scan", "demo:mamba", "--quick", "--horizon", "16", "--query", "context", "-q"]
    assert main([*words, "--text", str(text)]) == 0
    capsys.readouterr()
    assert main([*words, "--text", str(tmp_path / "nosuch.txt")]) == 2
    assert "the text cannot be read: No such file" in capsys.readouterr().err


def test_data_of_the_user_are_named_in_the_headline(tmp_path, capsys):
    import numpy as np

    np.save(tmp_path / "noise.npy", np.random.default_rng(0).standard_normal((3000, 1)))
    words = ["scan", "demo:rnn", "--quick", "--horizon", "64", "-q"]
    assert main([*words, "--data", str(tmp_path / "noise.npy")]) == 0
    assert "In use it remembers" in (out := capsys.readouterr().out)
    assert "(noise.npy, 32 sequences" in out


def test_data_that_do_not_fit_or_are_not_there_are_bad_arguments(tmp_path, capsys):
    import numpy as np

    np.save(tmp_path / "wide.npy", np.ones((100, 7)))
    for name, told in {"wide": "the data have 7 columns", "nosuch": "no such file of data"}.items():
        assert main(["scan", "demo:rnn", "--quick", "--data", str(tmp_path / f"{name}.npy")]) == 2
        assert told in one_line(capsys.readouterr().err)
