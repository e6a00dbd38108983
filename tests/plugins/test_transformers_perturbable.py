"""Models of transformers with their weights as an argument."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import memaudit
from tests.module_laws import check_perturbable
from tests.plugins.transformers_zoo import ZOO, noise, tiny

FIXTURES = ("mamba1_hf", "mamba2_hf", "mamba1_original", "recurrentgemma_hf", "rwkv_hf", "xlstm_hf")


@pytest.mark.parametrize("name", ZOO)
def test_every_small_model_obeys_the_laws(name: str) -> None:
    check_perturbable(tiny(name))


@pytest.mark.shared
@pytest.mark.parametrize("name", [*FIXTURES, "llama_hf", "bert_hf"])
def test_every_fixture_obeys_the_laws(shared: Path, name: str) -> None:
    check_perturbable(memaudit.load(shared / "fixtures" / name / "small", dtype="float64"))


@pytest.mark.shared
@pytest.mark.parametrize("name", FIXTURES)
def test_recurrent_layers_tell_how_their_modes_follow_the_weights(shared: Path, name: str) -> None:
    subject = memaudit.load(shared / "fixtures" / name / "small", dtype="float64")
    model = subject.perturbable()
    assert model is not None
    layers = {role.layer for role in model.roles.values() if role.group == "recurrent"}
    assert layers == {spectrum.layer for spectrum in subject.spectra()} == set(model.modes({}))


def test_the_modes_of_mamba_follow_a_moved_rate_as_the_formula_says() -> None:
    model = tiny("mamba").perturbable()
    (name, *_) = (name for name in model.weights if name.endswith("A_log"))
    layer = model.roles[name].layer
    raw = model.weights[name]
    before, after = model.modes({name: torch.stack([raw, raw + 0.5])})[layer].abs()
    torch.testing.assert_close(after, before ** float(torch.tensor(0.5).double().exp()))


def test_attention_runs_in_one_batch_and_scans_one_after_the_other() -> None:
    for name, wanted in (("llama", "vmap"), ("mamba", "one after the other")):
        subject = tiny(name)
        model: Any = subject.perturbable()
        moved = {key: torch.stack([w, w]) for key, w in model.weights.items()}
        model.respond(noise(1, 5, subject.input_size or 1), moved)
        assert model.execution == wanted


def test_the_table_of_tokens_is_not_moved_and_positions_are() -> None:
    names = set(tiny("gpt2").perturbable().weights)
    assert not any(name.endswith("wte.weight") for name in names)
    assert any(name.endswith("wpe.weight") for name in names)


@pytest.mark.shared
def test_the_head_of_a_classifier_is_its_readout(shared: Path) -> None:
    model = memaudit.load(shared / "fixtures" / "bert_hf" / "small").perturbable()
    assert model is not None
    readout = {name for name, role in model.roles.items() if role.group == "readout"}
    assert readout == {"classifier.weight", "classifier.bias"}
