"""The demos of the state-space zoo do what they were trained for, and their script runs."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

import memaudit
from examples import train_ssm_demos
from memaudit.loading.source import DEMO_FOLDER

NAMES = ("s4d", "lru")
#: Of each demo.
ROOM = 100_000


def test_the_s4d_averages_with_the_kernel_that_it_was_taught():
    subject = memaudit.load(DEMO_FOLDER / "s4d")
    inputs, wanted = train_ssm_demos.averaging_batch(32, torch.Generator().manual_seed(99))
    loss = (subject.respond(inputs.double()) - wanted).square().mean()
    assert loss < 1e-2 * wanted.square().mean()


def test_the_lru_repeats_the_symbol_of_eight_steps_ago():
    subject = memaudit.load(DEMO_FOLDER / "lru")
    inputs, wanted = train_ssm_demos.copying_batch(32, torch.Generator().manual_seed(99))
    guesses = subject.respond(inputs.double())[:, train_ssm_demos.DELAY :].argmax(-1)
    assert (guesses == wanted).double().mean() > 0.99


def test_an_audit_finds_the_decay_that_the_s4d_was_taught():
    report = memaudit.scan(DEMO_FOLDER / "s4d", horizon=128)
    decay = report.memory["impulse"].decay
    assert decay.kind == "exponential"
    assert decay.rate == pytest.approx(-math.log(train_ssm_demos.DECAY), rel=0.1)
    assert not report.subject.assumed


def test_an_audit_finds_the_delay_and_the_end_of_the_memory_of_the_lru():
    report = memaudit.scan(DEMO_FOLDER / "lru", horizon=128, amplitudes=(1.0,))
    curve = report.memory["impulse"]
    late = {int(lag): value for lag, value in zip(curve.lags, curve.values, strict=True) if lag > 3}
    assert max(late, key=lambda lag: late[lag]) == train_ssm_demos.DELAY
    assert curve.horizon is not None
    assert train_ssm_demos.DELAY < curve.horizon < 60


@pytest.mark.parametrize("name", NAMES)
def test_every_linear_layer_of_a_demo_agrees_with_its_closed_form(name):
    report = memaudit.scan(DEMO_FOLDER / name, horizon=64, level="quick")
    assert report.spectrum
    assert report.closed_form
    assert all(item.margin > 0 for item in report.spectrum)
    assert not [f.code for f in report.findings if f.name == "closed-form-disagrees"]


def test_two_steps_of_training_write_folders_that_load(tmp_path: Path, capsys):
    assert train_ssm_demos.main(["--out", str(tmp_path), "--steps", "2"]) == 0
    printed = capsys.readouterr().out
    for name in NAMES:
        assert f"{name}: loss" in printed
        assert memaudit.load(tmp_path / name).identity.whole


@pytest.mark.parametrize("name", NAMES)
def test_training_repeats_to_the_bit(tmp_path: Path, name: str):
    for run in ("one", "two"):
        generator = torch.Generator().manual_seed(7)
        recipe = getattr(train_ssm_demos, name)(generator)
        train_ssm_demos.train(recipe, 2, generator)
        train_ssm_demos.write(recipe, tmp_path / run)
    one, two = (sorted((tmp_path / run / name).iterdir()) for run in ("one", "two"))
    assert [file.read_bytes() for file in one] == [file.read_bytes() for file in two]


@pytest.mark.parametrize("name", NAMES)
def test_a_demo_is_small(name):
    assert sum(file.stat().st_size for file in (DEMO_FOLDER / name).iterdir()) < ROOM
