"""`memaudit retrofit` and `memaudit fold`: what they print, write and refuse."""

from __future__ import annotations

import re
import shlex

import pytest
import torch
from torch import nn

import memaudit
from memaudit.cli import main
from memaudit.loading import open_checkpoint
from memaudit.retrofitting.result import RefusedLayer, Retrofit, RetrofittedLayer
from memaudit.writers.terminal import plain_text, whole
from tests.cli.played import one_line
from tests.retrofitting.checkpoints import write


def layer() -> RetrofittedLayer:
    return RetrofittedLayer(
        layer="rnn.l0",
        cell="RNN",
        weight="stack.weight_hh_l0",
        old="direct",
        new="best (a=1.5, b=0.75)",
        time="discrete",
        modes=64,
        constants={"a": 1.5, "b": 0.75},
        difference=0.0,
        radius_before=0.01,
        radius_after=0.02,
        radius_criterion="E(beta) <= 1",
        moved=1,
        farthest=0.25,
        note="at rest",
    )


def test_the_page_shows_every_layer_within_eighty_columns():
    refused = RefusedLayer("rnn.l1", "RNN", "its eigenvectors are ill-conditioned")
    done = Retrofit("best", (layer(),), (refused,), difference=1e-16)
    page = plain_text(whole(done.document()))
    assert max(map(len, page.splitlines())) <= 80
    assert page.startswith("memaudit retrofit best\n")
    words = " ".join(page.split())
    for line in (
        "Largest difference of the model's answers: 1e-16.",
        "Radius: how far the weights may move until the answers change: E(beta) <= 1.",
        "Moved: 1 of 64 modes of rnn.l0, by 0.25 at most.",
        "Refused: rnn.l1: its eigenvectors are ill-conditioned.",
        "Note: at rest.",
        "rnn.l0 weight_hh_l0 direct best a=1.5,",
    ):
        assert line in words
    assert "indings" not in page


def test_a_retrofit_and_a_fold_give_the_checkpoint_back(tmp_path, capsys):
    source, out, back = write(tmp_path, "contained"), tmp_path / "out", tmp_path / "back"
    words = ("--reparam", "best", "--set", "a=2.0", "--set", "b=1.0", "--out", str(out))
    assert main(["retrofit", str(source), *words]) == 0
    told = capsys.readouterr()
    assert "a=2, b=1" in told.out
    assert max(map(len, told.out.splitlines())) <= 80
    assert "was written" in one_line(told.err)
    assert main(["fold", str(out), "--out", str(back)]) == 0
    assert capsys.readouterr().out == f"1 weight was folded; {back} was written\n"
    one, other = open_checkpoint(source), open_checkpoint(back / source.name)
    assert all(torch.equal(v, other.tensors[n]) for n, v in one.tensors.items())
    assert other.metadata == one.metadata


@pytest.mark.parametrize(
    ("words", "code", "fact"),
    [
        (["--reparam", "bst"], 2, "unknown reparam 'bst'"),
        (["--set", "q=1"], 2, "has an option 'q'"),
        (["--set", "epsilon=1"], 2, "retrofit measures nothing"),
        (["--layer", "rnn.l7"], 2, "there is no recurrent layer 'rnn.l7'"),
        (["--device", "abacus"], 2, "unknown device"),
        (["--set", "a=-1"], 2, "a"),
    ],
)
def test_bad_arguments_are_one_line_and_nothing_is_written(tmp_path, capsys, words, code, fact):
    source = write(tmp_path, "safetensors")
    assert main(["retrofit", str(source), *words, "--out", str(tmp_path / "out")]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert fact in one_line(err)
    assert not (tmp_path / "out").exists()


def test_a_model_without_recurrence_exits_with_three(tmp_path, capsys):
    source = tmp_path / "linear.pt"
    torch.save(nn.LSTM(2, 3).state_dict(), source)
    assert main(["retrofit", str(source), "--out", str(tmp_path / "out")]) == 3
    assert "no layer could be retrofitted" in one_line(capsys.readouterr().err)
    assert not (tmp_path / "out").exists()


def test_an_output_that_is_there_exits_with_two(tmp_path, capsys):
    source = write(tmp_path, "safetensors")
    assert main(["retrofit", str(source), "--out", str(tmp_path)]) == 2
    assert "not empty" in one_line(capsys.readouterr().err)


def test_a_fold_of_what_is_no_retrofit_exits_with_three(tmp_path, capsys):
    (tmp_path / "plain").mkdir()
    assert main(["fold", str(tmp_path / "plain"), "--out", str(tmp_path / "back")]) == 3
    told = one_line(capsys.readouterr().err)
    assert "plain is no retrofit folder: it has no retrofit_config.json" in told


def on_the_boundary(path, scale: float = 1.0):
    """An RNN that turns its state, at this scale: with 1 every mode has modulus 1."""
    torch.manual_seed(0)
    cell = nn.RNN(2, 8, bias=False, batch_first=True)
    with torch.no_grad():
        cell.weight_hh_l0.copy_(scale * torch.linalg.qr(torch.randn(8, 8))[0])
    torch.save(cell.state_dict(), path)
    return path


def test_the_advice_of_a_scan_is_a_command_that_works(tmp_path, capsys):
    report = memaudit.scan(on_the_boundary(tmp_path / "rnn.pt"), level="quick", horizon=64)
    advice = next(finding.advice for finding in report.findings if finding.code == "MA201")
    command = re.findall("`memaudit (.+?)`", advice)[0].replace("DIR", str(tmp_path / "out"))
    assert main(shlex.split(command)) == 0
    capsys.readouterr()
    again = memaudit.scan(tmp_path / "out", level="quick", horizon=64)
    assert "memaudit retrofit" not in "".join(finding.advice for finding in again.findings)
    assert main(["retrofit", str(tmp_path / "out"), "--out", str(tmp_path / "x")]) == 2
    told = one_line(capsys.readouterr().err)
    assert f"memaudit fold {tmp_path / 'out'} --out DIR" in told


def test_a_refusal_names_the_command_that_moves_modes_inside_which_says_what_it_did(
    tmp_path, capsys
):
    source, out = on_the_boundary(tmp_path / "rnn.pt", scale=1.5), str(tmp_path / "out")
    assert main(["retrofit", str(source), "--out", out]) == 3
    told = one_line(capsys.readouterr().err)
    assert "out of reach of best" in told
    assert "the step linearised at the zero state" in told
    assert "project=True" not in told
    command = re.findall("`memaudit (.+?)`", told)[0]
    assert main(shlex.split(command)) == 0
    assert capsys.readouterr().out.startswith("This is another model: its answers differ by ")
