"""The demo models do what they were trained for, and the scripts that train them run."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

import memaudit
from examples import train_demos, train_ssm_demos, train_zoo_demos
from memaudit.interfaces import Status
from memaudit.loading.source import DEMO_FOLDER
from memaudit.registry import DEMOS

SCRIPTS = {
    train_demos: ("lstm.safetensors", "gru.safetensors", "rnn.safetensors"),
    train_ssm_demos: ("s4d", "lru"),
    train_zoo_demos: ("mamba", "bert"),
}


def drawn(seed: int = 99) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("recipe", train_demos.RECIPES, ids=lambda recipe: recipe.name)
def test_a_recurrent_demo_averages_with_the_kernel_that_it_was_taught(
    recipe: train_demos.Recipe,
) -> None:
    assert recipe.kernel().norm().item() == pytest.approx(1.0)
    inputs, targets = train_demos.batch(recipe, 64, drawn())
    subject = memaudit.load(f"demo:{recipe.name}")
    error = (subject.respond(inputs) - targets).square().mean()
    assert error < 0.02 * targets.square().mean()
    description = f"1-layer {recipe.name.upper()}, 1 → 32, head to 1"
    assert subject.identity.description == description
    assert "nonlinearity" not in subject.identity.assumed
    with safe_open(str(DEMO_FOLDER / f"{recipe.name}.safetensors"), framework="pt") as file:
        metadata = file.metadata()
    assert metadata["kind"] == recipe.name
    assert float(metadata["final_loss"]) < 0.01


def test_the_s4d_averages_with_the_decay_that_it_was_taught() -> None:
    subject = memaudit.load("demo:s4d")
    inputs, wanted = train_ssm_demos.averaging_batch(32, drawn())
    loss = (subject.respond(inputs.double()) - wanted).square().mean()
    assert loss < 1e-2 * wanted.square().mean()
    report = memaudit.scan(subject, horizon=128, level="quick")
    decay = report.memory["impulse"].decay
    assert decay.kind == "exponential"
    assert decay.rate == pytest.approx(-math.log(train_ssm_demos.DECAY), rel=0.1)
    assert not report.subject.assumed


def test_the_lru_repeats_the_symbol_of_eight_steps_ago() -> None:
    subject = memaudit.load("demo:lru")
    inputs, wanted = train_ssm_demos.copying_batch(32, drawn())
    guesses = subject.respond(inputs.double())[:, train_ssm_demos.DELAY :].argmax(-1)
    assert (guesses == wanted).double().mean() > 0.99
    options = {"queries": ["impulse"], "amplitudes": (1.0,)}
    curve = memaudit.scan(subject, horizon=128, **options).memory["impulse"]
    late = {int(lag): value for lag, value in zip(curve.lags, curve.values, strict=True) if lag > 3}
    assert max(late, key=lambda lag: late[lag]) == train_ssm_demos.DELAY
    assert curve.horizon is not None
    assert train_ssm_demos.DELAY < curve.horizon < 60


@pytest.mark.parametrize("name", ["s4d", "lru"])
def test_every_linear_layer_of_a_demo_agrees_with_its_closed_form(name: str) -> None:
    report = memaudit.scan(f"demo:{name}", horizon=64, level="quick")
    assert report.closed_form
    assert all(item.margin > 0 for item in report.spectrum)
    assert not [f.code for f in report.findings if f.name == "closed-form-disagrees"]


def test_the_mamba_predicts_the_next_letter_far_better_than_chance() -> None:
    subject = memaudit.load("demo:mamba", output="logits")
    ids = subject.tokens_of(memaudit.data.sample_text()[:600])
    assert ids is not None
    guesses = torch.log_softmax(subject.respond(ids[None])[0, 64:-1], dim=-1)
    loss = -guesses.gather(1, ids[65:, None]).mean()
    assert loss < 0.5 * math.log(subject.vocabulary or 1)


def test_the_bert_separates_good_reviews_from_bad_ones() -> None:
    subject = memaudit.load("demo:bert")
    batch = train_zoo_demos.bert().batch(64, drawn())
    chosen = subject.respond(batch["input_ids"]).argmax(-1)
    assert (chosen == batch["labels"]).double().mean() > 0.95


@pytest.mark.parametrize("name", ["mamba", "bert"])
def test_a_demo_of_the_zoo_answers_queries_in_both_spaces(name: str) -> None:
    asked = ["heaviside", "repeat", "context"]
    text = "the film was good and the story was bad and it ends with a scene " * 32
    report = memaudit.scan(f"demo:{name}", horizon=32, level="quick", queries=asked, text=text)
    assert {curve.status for curve in report.memory.values()} <= {Status.OK, Status.BELOW_FLOOR}
    assert bool(report.spectrum) == (name == "mamba")
    assert memaudit.Report.from_dict(report.to_dict()) == report


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_two_steps_of_training_write_models_that_load_and_repeat_to_the_bit(
    tmp_path: Path, script, capsys: pytest.CaptureFixture[str]
) -> None:
    for run in ("one", "two"):
        assert script.main(["--out", str(tmp_path / run), "--steps", "2"]) == 0
    printed = capsys.readouterr().out
    for name in SCRIPTS[script]:
        assert f"{name}: loss" in printed
        one, two = (memaudit.load(tmp_path / run / name) for run in ("one", "two"))
        assert one.identity.whole
        again = two.weights()
        assert all(torch.equal(weight, again[key]) for key, weight in one.weights().items())


def test_the_demos_leave_the_package_small() -> None:
    files = [path for path in DEMO_FOLDER.rglob("*") if path.is_file()]
    named = {path.relative_to(DEMO_FOLDER).parts[0].partition(".")[0] for path in files}
    assert named == set(DEMOS)
    package = [path for path in DEMO_FOLDER.parent.rglob("*") if path.suffix != ".pyc"]
    assert sum(path.stat().st_size for path in package if path.is_file()) < 5_000_000
