"""The demo models do what they were trained for, and the script that trains them runs."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors import safe_open

from memaudit.interfaces import AbstractSubject, Request
from memaudit.loading.source import parse_source
from memaudit_rnn import RnnAdapter

SCRIPT = Path(__file__).parents[2] / "examples" / "train_demos.py"
DEMOS = ("lstm", "gru", "rnn")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("train_demos", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def opened(source: object) -> AbstractSubject:
    request = Request(torch.device("cpu"), None, None, options={})
    return RnnAdapter().load(parse_source(source), request)


@pytest.mark.parametrize("name", DEMOS)
def test_a_demo_solves_its_task(name: str, script: ModuleType) -> None:
    recipe = next(recipe for recipe in script.RECIPES if recipe.name == name)
    inputs, targets = script.batch(recipe, 64, torch.Generator().manual_seed(99))
    error = (opened(f"demo:{name}").respond(inputs) - targets).square().mean()
    assert error < 0.02 * targets.square().mean()


@pytest.mark.parametrize("name", DEMOS)
def test_a_demo_states_how_it_was_trained(name: str) -> None:
    source = parse_source(f"demo:{name}")
    with safe_open(str(source.path), framework="pt") as file:
        metadata = file.metadata()
    assert metadata["kind"] == name
    assert float(metadata["final_loss"]) < 0.01
    identity = opened(f"demo:{name}").identity
    assert identity.description == f"1-layer {name.upper()}, 1 → 32, head to 1"
    assert "nonlinearity" not in identity.assumed


def test_two_steps_of_training_write_files_that_load(
    tmp_path: Path, script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main(["--out", str(tmp_path), "--steps", "2"]) == 0
    printed = capsys.readouterr().out
    for name in DEMOS:
        assert f"{name}.safetensors: loss" in printed
        answer = opened(tmp_path / f"{name}.safetensors").respond(torch.zeros(1, 3, 1))
        assert answer.shape == (1, 3, 1)


def test_the_kernels_have_unit_norm(script: ModuleType) -> None:
    for recipe in script.RECIPES:
        assert recipe.kernel().norm().item() == pytest.approx(1.0)
