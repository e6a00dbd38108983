"""Code that lies in a model's repository runs only for a user who says so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import memaudit
from memaudit.errors import SourceError
from memaudit.loading.access import Access
from tests.plugins.transformers_zoo import code_cache, ids, make, opened, saved

TRUST = Access(trust_remote_code=True)
CODE = """
from pathlib import Path

import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from .own_parts import Decay

Path({canary!r}).touch()


class OwnConfig(PretrainedConfig):
    model_type = "own_model"

    def __init__(self, width=4, words=9, **more):
        super().__init__(**more)
        self.width, self.words = width, words


class OwnModel(PreTrainedModel):
    config_class = OwnConfig

    def __init__(self, config):
        super().__init__(config)
        self.table = nn.Embedding(config.words, config.width)
        self.decay = Decay(config.width)
        self.post_init()

    def get_input_embeddings(self):
        return self.table

    def forward(self, input_ids=None, inputs_embeds=None, **kwargs):
        x = self.table(input_ids) if inputs_embeds is None else inputs_embeds
        return BaseModelOutput(last_hidden_state=self.decay(x))
"""
PARTS = """
import torch
from torch import nn


class Decay(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.rate = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        steps, state = [], torch.zeros_like(x[:, 0])
        for step in x.unbind(1):
            state = self.rate * state + step
            steps.append(state)
        return torch.stack(steps, 1)
"""


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    return tmp_path / "canary"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path) -> Iterator[None]:
    with code_cache(tmp_path / "modules"):
        yield


@pytest.fixture
def folder(tmp_path: Path, canary: Path) -> Path:
    """A repository with code of its own."""
    home = tmp_path / "own"
    home.mkdir()
    (home / "own_model.py").write_text(CODE.format(canary=str(canary)))
    (home / "own_parts.py").write_text(PARTS)
    weights = {"table.weight": torch.ones(9, 4), "decay.rate": torch.full((4,), 0.5)}
    save_file(weights, home / "model.safetensors", metadata={"format": "pt"})
    return configured(home, AutoConfig="own_model.OwnConfig", AutoModel="own_model.OwnModel")


def configured(home: Path, **auto_map: str) -> Path:
    values = {"model_type": "own_model", "architectures": ["OwnModel"], "auto_map": auto_map}
    (home / "config.json").write_text(json.dumps({**values, "width": 4, "words": 9}))
    return home


def test_it_is_refused_without_the_flag_and_nothing_is_run(folder: Path, canary: Path) -> None:
    with pytest.raises(SourceError) as caught:
        memaudit.load(folder)
    assert caught.value.code == "E_UNSUPPORTED"
    assert "trust_remote_code is off" in caught.value.fact
    assert "--trust-remote-code" in caught.value.hint
    assert not canary.exists()


def test_it_is_opened_with_the_flag_and_the_report_says_so(folder: Path, canary: Path) -> None:
    subject = memaudit.load(folder, trust_remote_code=True)
    assert canary.exists()
    assert any(
        note.startswith("trust_remote_code: OwnModel is code of the repository")
        for note in subject.identity.notes
    )
    impulse = torch.zeros(1, 6, 4, dtype=torch.float64)
    impulse[:, 0] = 1
    expected = 0.5 ** torch.arange(6, dtype=torch.float64)
    assert torch.equal(subject.respond(impulse)[0, :, 0], expected)


def test_known_models_do_not_run_code_that_lies_beside_them(folder: Path, canary: Path) -> None:
    home = saved(make("mamba"), folder.parent / "mamba")
    path = home / "config.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps({**values, "auto_map": {"AutoModel": "own_model.OwnModel"}}))
    (home / "own_model.py").write_text((folder / "own_model.py").read_text())
    subject = opened(home, access=TRUST)
    assert type(subject.model).__name__ == "MambaForCausalLM"
    assert not canary.exists()


def test_a_missing_tensor_is_no_less_refused(folder: Path) -> None:
    weights = {"table.weight": torch.ones(9, 4)}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(SourceError) as caught:
        opened(folder, access=TRUST)
    assert caught.value.code == "E_WEIGHTS"
    assert "decay.rate" in caught.value.fact


@pytest.mark.parametrize(
    "place",
    ["other/repo--own_model.OwnModel", "../own_model.OwnModel", "nowhere.OwnModel", "OwnModel"],
)
def test_code_of_another_place_is_not_fetched(folder: Path, place: str) -> None:
    with pytest.raises(SourceError) as caught:
        opened(configured(folder, AutoModel=place), access=TRUST)
    assert caught.value.code == "E_UNSUPPORTED"
    assert "the code in the repository cannot be used" in caught.value.fact


@pytest.mark.parametrize("code", ["raise ValueError('no')", "def", "OwnModel = 3", "x = 1"])
def test_code_that_fails_is_one_sentence(folder: Path, code: str) -> None:
    (folder / "own_model.py").write_text(code)
    with pytest.raises(SourceError) as caught:
        opened(configured(folder, AutoModel="own_model.OwnModel"), access=TRUST)
    assert caught.value.code == "E_UNSUPPORTED"


def test_the_flag_alone_opens_no_unknown_type(folder: Path) -> None:
    with pytest.raises(SourceError, match="does not know the model type 'own_model'"):
        memaudit.load(configured(folder), trust_remote_code=True)


def test_ids_are_answered_by_trusted_code(folder: Path) -> None:
    assert opened(folder, access=TRUST).respond(ids(2, 5, words=9)).shape == (2, 5, 4)
