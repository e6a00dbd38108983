"""The demos of the transformers zoo do what they were trained for, and their script runs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import memaudit
from examples import train_zoo_demos
from memaudit.loading.source import DEMO_FOLDER
from memaudit.memory.result import Status
from memaudit.registry import DEMOS

ROOM = 5_000_000


def test_the_mamba_predicts_the_next_letter_far_better_than_chance():
    subject = memaudit.load("demo:mamba", output="logits")
    ids = subject.tokens_of(memaudit.data.sample_text()[:600])
    assert ids is not None
    guesses = torch.log_softmax(subject.respond(ids[None])[0, 64:-1], dim=-1)
    loss = -guesses.gather(1, ids[65:, None]).mean()
    assert loss < 0.5 * torch.log(torch.tensor(float(subject.vocabulary or 1)))


def test_the_bert_tells_good_reviews_from_bad_ones():
    subject = memaudit.load("demo:bert")
    batch = train_zoo_demos.bert().batch(64, torch.Generator().manual_seed(99))
    chosen = subject.respond(batch["input_ids"]).argmax(-1)
    assert (chosen == batch["labels"]).double().mean() > 0.95


@pytest.mark.parametrize("name", ["mamba", "bert"])
def test_a_demo_of_the_zoo_answers_queries_in_both_spaces(name):
    asked = ["heaviside", "repeat", "context"]
    text = "the film was good and the story was bad and it ends with a scene " * 8
    report = memaudit.scan(f"demo:{name}", horizon=32, level="quick", queries=asked, text=text)
    assert {curve.status for curve in report.memory.values()} <= {Status.OK, Status.BELOW_FLOOR}
    assert bool(report.spectrum) == (name == "mamba")
    assert memaudit.Report.from_dict(report.to_dict()) == report


def test_two_steps_of_training_write_folders_that_load(tmp_path: Path, capsys):
    assert train_zoo_demos.main(["--out", str(tmp_path), "--steps", "2"]) == 0
    printed = capsys.readouterr().out
    for name in ("mamba", "bert"):
        assert f"{name}: loss" in printed
        assert memaudit.load(tmp_path / name).tokens_of("a film") is not None


def test_the_demos_leave_the_package_small():
    files = [path for path in DEMO_FOLDER.rglob("*") if path.is_file()]
    assert {path.relative_to(DEMO_FOLDER).parts[0].partition(".")[0] for path in files} == set(
        DEMOS
    )
    package = [path for path in DEMO_FOLDER.parent.rglob("*") if path.suffix != ".pyc"]
    assert sum(path.stat().st_size for path in package if path.is_file()) < ROOM
