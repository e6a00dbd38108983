"""Formats that a scan writes beside its page: by an option of their own, or by `--report`."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from memaudit.writers.markdown import Markdown
from tests.cli.played import one_line
from tests.handmade import of_kind, report


def test_a_section_for_a_model_card_goes_to_its_file(run, stage, tmp_path):
    path = tmp_path / "card.md"
    code, out, _ = run("--markdown", str(path))
    assert code == 0
    assert out.startswith("memaudit demo:lstm")
    assert path.read_text() == Markdown().render(stage.answer)


def test_a_section_on_stdout_is_all_there_is(run, stage):
    code, out, err = run("--markdown", "-")
    assert (code, err) == (0, "")
    assert out.startswith("## Memory audit\n")
    assert out == Markdown().render(stage.answer)


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


def test_annotations_tell_of_the_gate_that_was_hit(run, stage):
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


def test_variables_name_the_files_too(run, stage, tmp_path, monkeypatch):
    monkeypatch.setenv("MEMAUDIT_MARKDOWN", str(tmp_path / "a.md"))
    monkeypatch.setenv("MEMAUDIT_OUTPUT_PATH", str(tmp_path / "b.json"))
    assert run()[0] == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.md", "b.json"]


def test_two_formats_for_one_file_are_refused(run, stage, tmp_path):
    path = str(tmp_path / "x")
    code, _, err = run("--markdown", path, "-o", path)
    assert (code, stage.calls) == (2, [])
    assert "two reports go to" in one_line(err)
