"""`memaudit family`: arguments, streams, gates and exit codes, on a played and on a real audit."""

from __future__ import annotations

import json
import sys
import types
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from memaudit.cli import main
from memaudit.errors import SourceError
from memaudit.families.result import FamilyReport
from tests.cli.played import one_line
from tests.families.handmade import stable, unstable


class FamilyInterrupted(KeyboardInterrupt):
    def __init__(self, report) -> None:
        self.report = report


@pytest.fixture
def play(monkeypatch, capsys):
    """Runs the command on an audit that answers, or raises, what it is told."""
    calls: list[dict] = []

    def play(answer, *words):
        def family(sources, **arguments):
            calls.append({"sources": sources, **arguments})
            if isinstance(answer, BaseException):
                raise answer
            return answer

        module = types.ModuleType("memaudit.families.audit")
        module.family, module.FamilyInterrupted = family, FamilyInterrupted  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "memaudit.families.audit", module)
        code = main(["family", "demo:lstm", "demo:gru", *words])
        out, err = capsys.readouterr()
        return code, out, err, calls

    return play


def judged(report):
    from memaudit.rules import judge

    return replace(report, findings=judge(report, family=True))


def test_a_clean_family_prints_the_page_and_exits_with_zero(play):
    code, out, err, _ = play(stable())
    assert (code, err) == (0, "")
    assert out.splitlines()[-1].startswith("crossings: the larger model is never the worse one")


def test_every_option_reaches_the_audit(play, monkeypatch):
    monkeypatch.setenv("MEMAUDIT_NORM", "sup")
    words = ["--target", "exp:0.9", "--ball", "frobenius", "--group", "recurrent", "--draws", "7"]
    words += ["--ascent", "0", "--beta", "0.1", "--beta", "0.2", "--steps", "50", "--seed", "3"]
    *_, calls = play(stable(), *words, "--set", "head=none")
    (call,) = calls
    wanted = {"target": "exp:0.9", "ball": "frobenius", "norm": "sup", "group": "recurrent"}
    wanted |= {"draws": 7, "ascent": 0, "betas": [0.1, 0.2], "steps": 50, "seed": 3, "head": "none"}
    assert {name: call[name] for name in wanted} == wanted
    assert call["sources"] == ["demo:lstm", "demo:gru"]


def test_json_on_stdout_is_alone_there(play):
    code, out, _, _ = play(unstable(), "--json", "-")
    assert code == 0
    assert FamilyReport.from_dict(json.loads(out)) == unstable()


def test_a_gate_is_hit_by_its_finding(play):
    code, _, err, _ = play(judged(unstable()), "--fail-on", "MA208")
    assert code == 1
    assert "was hit by MA208 crossings-shift-left" in one_line(err)
    assert play(judged(stable()), "--fail-on", "note")[0] == 0


def test_an_error_is_one_line(play):
    error = SourceError("E_CORRUPT", "half a file", hint="fetch it again", source="demo:gru")
    code, out, err, _ = play(error)
    assert (code, out) == (3, "")
    assert one_line(err) == "memaudit: error[E_CORRUPT] demo:gru: half a file; fetch it again"


def test_an_interrupted_family_shows_what_was_measured(play):
    code, out, err, _ = play(FamilyInterrupted(replace(stable(), complete=False)))
    assert code == 130
    assert out.startswith("The audit is incomplete")
    assert "the members that were measured" in one_line(err)


@pytest.mark.parametrize(
    ("words", "fact"),
    [
        (["--device", "gpu"], "unknown device"),
        (["--adapter", "rn"], "did you mean rnn?"),
        (["--set", "draws=3"], "--set cannot change draws; use --draws"),
        (["--fail-on", "MA999"], "no level or finding"),
        (["--fail-on", "MA205"], "MA205 is found on one model, not on a family"),
        (["--draws", "0"], "--draws"),
        (["no-such-file.pt"], "no such file or folder"),
        (["--json", "no-such-folder/f.json"], "does not exist"),
    ],
)
def test_wrong_arguments_are_refused_before_any_work(play, words, fact):
    code, out, err, calls = play(stable(), *words)
    assert (code in (2, 3), out, calls) == (True, "", [])
    assert fact in one_line(err)


def test_the_report_never_replaces_a_member(play, tmp_path):
    save_file({"w": torch.zeros(1)}, tmp_path / "model.safetensors")
    file = str(tmp_path / "model.safetensors")
    code, _, err, _ = play(stable(), file, "--json", file)
    assert code == 2
    assert "would replace a file of a model" in one_line(err)


def test_files_of_growing_networks_are_a_family(tmp_path, capsys):
    draw = torch.Generator().manual_seed(0)
    for size in (2, 3, 4):
        shapes = {"weight_ih_l0": (size, 1), "weight_hh_l0": (size, size)}
        shapes |= {"bias_ih_l0": (size,), "bias_hh_l0": (size,)}
        tensors = {f"rnn.{n}": torch.rand(s, generator=draw) / size for n, s in shapes.items()}
        tensors |= {"head.weight": torch.rand(1, size, generator=draw)}
        tensors |= {"head.bias": torch.zeros(1)}
        save_file(tensors, tmp_path / f"{size}.safetensors")
    files = [str(tmp_path / f"{size}.safetensors") for size in (4, 2, 3)]
    words = ["--draws", "2", "--ascent", "0", "--steps", "16", "--json", "-"]
    assert main(["family", *files, *words]) == 0
    report = FamilyReport.from_dict(json.loads(capsys.readouterr().out))
    assert [member.size for member in report.members] == [2, 3]
    assert report.against is not None
    assert report.against.source == files[0]
    assert report.counted == "states"
