"""A Mamba in its first authors' format is the same model as in that of transformers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import memaudit
from memaudit.errors import SourceError
from memaudit.loading.source import parse_source
from memaudit_transformers import TransformersAdapter
from tests.plugins.transformers_zoo import ids, make, opened

Change = Callable[[dict[str, torch.Tensor]], object]
TABLE = "backbone.embedding.weight"


def written(folder: Path, change: Change = lambda tensors: None, **config: Any) -> Path:
    """A folder as the first authors' code writes it."""
    state = make("mamba").state_dict()
    tensors = {k.replace("embeddings.", "embedding."): v.clone() for k, v in state.items()}
    change(tensors)
    torch.save(tensors, folder / "pytorch_model.bin")
    stated = {"d_model": 32, "n_layer": 2, "vocab_size": 50, "ssm_cfg": {}, "rms_norm": True}
    stated = {k: v for k, v in {**stated, **config}.items() if v is not None}
    (folder / "config.json").write_text(json.dumps(stated))
    return folder


def refusal(folder: Path) -> SourceError:
    with pytest.raises(SourceError) as caught:
        opened(folder)
    return caught.value


def test_it_is_the_same_model(tmp_path: Path) -> None:
    claim = TransformersAdapter().claim(parse_source(written(tmp_path)))
    assert claim is not None
    assert (claim.family, claim.strength) == ("mamba", 12)
    model, tokens = make("mamba"), ids(2, 9)
    with torch.no_grad():
        expected = model.backbone(tokens, use_cache=False).last_hidden_state
    subject = memaudit.load(tmp_path, dtype="float32")
    torch.testing.assert_close(subject.respond(tokens), expected, rtol=0, atol=2e-6)


def test_no_config_is_needed(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "config.json").unlink()
    assert opened(tmp_path).identity.description.startswith("MambaForCausalLM, 2 layers, width 32")


def test_a_head_that_is_not_tied_is_kept(tmp_path: Path) -> None:
    head = torch.linspace(-1, 1, 50 * 32).reshape(50, 32)
    written(tmp_path, lambda tensors: tensors.update({"lm_head.weight": head}))
    subject = opened(tmp_path, output="logits")
    assert any("it is not tied" in note for note in subject.identity.notes)
    hidden = opened(tmp_path).respond(ids(1, 4))
    torch.testing.assert_close(subject.respond(ids(1, 4)), hidden @ head.double().T)


def test_a_tied_head_need_not_be_stored(tmp_path: Path) -> None:
    written(tmp_path, lambda tensors: tensors.pop("lm_head.weight"))
    assert opened(tmp_path, output="logits").respond(ids(1, 4)).shape == (1, 4, 50)


@pytest.mark.parametrize("config", [{"d_model": 64}, {"n_layer": 3}])
def test_a_config_that_contradicts_the_tensors_is_refused(
    config: dict[str, Any], tmp_path: Path
) -> None:
    error = refusal(written(tmp_path, **config))
    assert error.code == "E_CONFIG"
    assert next(iter(config)) in error.fact


def test_layer_norms_are_refused(tmp_path: Path) -> None:
    error = refusal(written(tmp_path, rms_norm=False))
    assert error.code == "E_UNSUPPORTED"
    assert "LayerNorm" in error.fact


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.pop("backbone.layers.0.mixer.conv1d.weight"),
        lambda t: t.pop("backbone.layers.1.mixer.D"),
        lambda t: t.update({"backbone.layers.0.mixer.dt_proj.weight": torch.zeros(64)}),
        lambda t: t.update({"backbone.layers.1.mixer.extra": torch.zeros(64)}),
        lambda t: t.update({"backbone.layers.1.mixer.A_log": torch.zeros(64, 5)}),
    ],
)
def test_missing_extra_and_misshaped_tensors_are_refused(change: Change, tmp_path: Path) -> None:
    assert refusal(written(tmp_path, change)).code == "E_WEIGHTS"


def test_a_high_number_of_a_layer_builds_no_layers(tmp_path: Path) -> None:
    far = {"backbone.layers.999999.norm.weight": torch.zeros(32)}
    error = refusal(written(tmp_path, lambda tensors: tensors.update(far)))
    assert error.code == "E_WEIGHTS"
    assert "backbone.layers.2.* is missing" in error.fact


def test_attention_and_mlps_are_refused(tmp_path: Path) -> None:
    assert "attention ([1])" in refusal(written(tmp_path, attn_layer_idx=[1])).fact
    assert "d_intermediate 64" in refusal(written(tmp_path, d_intermediate=64)).fact


def test_vectors_of_rates_in_a_mamba1_make_no_mamba2_of_it(tmp_path: Path) -> None:
    flat = {f"backbone.layers.{i}.mixer.A_log": torch.zeros(4) for i in (0, 1)}
    error = refusal(written(tmp_path, lambda tensors: tensors.update(flat)))
    assert error.code in ("E_WEIGHTS", "E_UNSUPPORTED")


def test_rates_of_three_dimensions_are_not_claimed(tmp_path: Path) -> None:
    cubes = {f"backbone.layers.{i}.mixer.A_log": torch.zeros(4, 4, 4) for i in (0, 1)}
    written(tmp_path, lambda tensors: tensors.update(cubes))
    assert TransformersAdapter().claim(parse_source(tmp_path)) is None
