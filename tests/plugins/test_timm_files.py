"""Checkpoints of timm: folders, files, training checkpoints, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from memaudit.errors import ArgumentError, SourceError
from memaudit.loading.source import parse_source
from memaudit_timm import TimmAdapter
from memaudit_timm.adapter import BY_NAMES, CERTAIN
from tests.plugins.timm_models import SMALL, VIT, made, noise, opened, saved, sequencer, vit

WEIGHTS = "model.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return saved(vit(), tmp_path / "vit", SMALL)


def own_answer(model: Any) -> torch.Tensor:
    with torch.no_grad():
        image = noise(1, 3, 64, 64)
        return model.double().forward_features(image)[:, 1:]


def patches(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model.double().patch_embed(noise(1, 3, 64, 64))


def changed(folder: Path, **values: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
    return folder


def refusal(source: Any, **options: Any) -> SourceError:
    with pytest.raises(SourceError) as error:
        opened(source, **options)
    return error.value


@pytest.mark.parametrize("prefix", ["", "local-dir:"])
def test_a_folder_answers_as_the_model_that_was_saved(folder: Path, prefix: str) -> None:
    model = vit()
    subject = opened(f"{prefix}{folder}")
    torch.testing.assert_close(subject.respond(patches(model)), own_answer(model))
    assert subject.identity.source == f"{prefix}{folder}"
    assert subject.identity.dtype == "float64"
    assert subject.identity.sha256 == parse_source(folder).checkpoint.sha256


def test_a_file_beside_its_config_answers_as_the_folder(folder: Path) -> None:
    one, two = opened(folder), opened(folder / WEIGHTS)
    inputs = noise(2, 16, 32)
    assert torch.equal(one.respond(inputs), two.respond(inputs))
    assert "config.json beside the file was read" in two.identity.notes


def test_a_model_with_tables_that_no_file_holds_is_opened(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"img_size": 56, "embed_dim": 32, "depth": 2, "num_heads": 2}
    model: Any = made("eva02_tiny_patch14_224", **sizes)
    subject = opened(saved(model, tmp_path / "eva", sizes))
    inputs = noise(1, 16, 32)
    answer = opened(model, torch.float64).respond(inputs)
    assert torch.equal(subject.respond(inputs), answer)


def test_a_bare_file_needs_the_name_of_its_model(tmp_path: Path) -> None:
    save_file(vit().state_dict(), tmp_path / "bare.safetensors")
    with pytest.raises(ArgumentError, match="do not say which model") as error:
        opened(tmp_path / "bare.safetensors")
    assert "--set model=NAME" in error.value.hint
    sizes = {key: value for key, value in SMALL.items() if key != "num_classes"}
    subject = opened(tmp_path / "bare.safetensors", model=VIT, model_args=sizes)
    torch.testing.assert_close(subject.respond(patches(vit())), own_answer(vit()))


def test_a_training_checkpoint_states_its_model(tmp_path: Path) -> None:
    model = made("test_vit", num_classes=7)
    state = {f"module.{name}": tensor for name, tensor in model.state_dict().items()}
    torch.save({"arch": "test_vit", "epoch": 3, "state_dict": state}, tmp_path / "last.pth")
    subject = opened(tmp_path / "last.pth")
    inputs = noise(1, 9, 64)
    assert torch.equal(subject.respond(inputs), opened(model, torch.float64).respond(inputs))


def test_weights_without_a_head_are_opened(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    save_file({k: t for k, t in tensors.items() if not k.startswith("head.")}, folder / WEIGHTS)
    torch.testing.assert_close(opened(folder).respond(patches(vit())), own_answer(vit()))


def test_missing_and_unknown_tensors_are_refused(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    kept = {name: t for name, t in tensors.items() if name != "blocks.1.attn.qkv.weight"}
    save_file({**kept, "blocks.1.attn.stray": torch.zeros(3)}, folder / WEIGHTS)
    error = refusal(folder)
    assert error.code == "E_WEIGHTS"
    assert "blocks.1.attn.qkv.weight" in error.fact
    assert "blocks.1.attn.stray" in error.fact


def test_a_config_of_other_sizes_is_refused(folder: Path) -> None:
    error = refusal(changed(folder, model_args={**SMALL, "embed_dim": 64}))
    assert error.code == "E_WEIGHTS"
    assert "instead of" in error.fact


def test_weights_that_are_not_finite_are_refused(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    tensors["norm.weight"][0] = float("nan")
    save_file(tensors, folder / WEIGHTS)
    assert refusal(folder).code == "E_NONFINITE"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("pretrained", True),
        ("pretrained_strict", False),
        ("cache_dir", "elsewhere"),
        ("features_only", True),
        ("pruned", True),
        ("device", "cuda"),
        ("embed_dim", 10**9),
        ("depth", 10**7),
        ("norm_layer", {"a": 1}),
        ("num_heads", "two" * 99),
    ],
)
def test_a_config_cannot_ask_for_more_than_sizes(folder: Path, key: str, value: Any) -> None:
    error = refusal(changed(folder, model_args={**SMALL, key: value}))
    assert error.code == "E_CONFIG"
    assert key in error.fact


@pytest.mark.parametrize("key", ["checkpoint_path", "pretrained_cfg_overlay"])
def test_what_names_other_weights_is_left_out_of_a_config(folder: Path, key: str) -> None:
    inputs = noise(1, 16, 32)
    expected = opened(folder).respond(inputs)
    subject = opened(changed(folder, model_args={**SMALL, key: "elsewhere"}))
    assert torch.equal(subject.respond(inputs), expected)
    left = [note for note in subject.identity.notes if "left out" in note]
    assert any(f"model_args.{key}" in note for note in left)


def test_sizes_that_do_not_fit_together_are_named(folder: Path) -> None:
    error = refusal(changed(folder, model_args={**SMALL, "num_heads": 5}))
    assert error.code == "E_CONFIG"
    assert "num_heads=5" in error.fact


def test_an_image_without_end_is_refused(tmp_path: Path) -> None:
    folder = saved(sequencer(), tmp_path / "model", None)
    stated = {"input_size": [3, 10**5, 10**5], "classifier": "head.fc"}
    sizes = {"layers": [3, 1], "patch_sizes": [7, 2], "embed_dims": [8, 12]}
    more = {"hidden_sizes": [3, 5], "mlp_ratios": [2.0, 2.0]}
    error = refusal(changed(folder, pretrained_cfg=stated, model_args={**sizes, **more}))
    assert error.code == "E_LIMIT"
    assert "100000" in error.fact


@pytest.mark.parametrize("size", [[3, 64], "large", [3, -1, 64], [3, 64.5, 64]])
def test_an_image_size_that_is_none_is_refused(folder: Path, size: Any) -> None:
    error = refusal(changed(folder, pretrained_cfg={"input_size": size}))
    assert error.code == "E_CONFIG"
    assert "input_size" in error.fact


def test_an_unknown_architecture_is_refused(folder: Path) -> None:
    with pytest.raises(ArgumentError, match="no model 'vit_tiny_patch16_225'") as error:
        opened(changed(folder, architecture="vit_tiny_patch16_225"))
    assert "vit_tiny_patch16_224" in error.value.hint


def test_a_random_start_cannot_be_asked_of_a_file(folder: Path) -> None:
    with pytest.raises(ArgumentError, match=r"pretrained=false is for timm:NAME"):
        opened(folder, pretrained=False)


def test_opening_does_not_move_the_global_random_numbers(folder: Path) -> None:
    before = torch.get_rng_state()
    opened(folder)
    opened("timm:test_vit", pretrained=False)
    assert torch.equal(torch.get_rng_state(), before)


def test_claims_rest_on_the_config_and_the_names(folder: Path, tmp_path: Path) -> None:
    adapter = TimmAdapter()

    def strength(source: Any) -> int:
        claim = adapter.claim(parse_source(source))
        return 0 if claim is None else claim.strength

    save_file(vit().state_dict(), tmp_path / "bare.safetensors")
    save_file({"lstm.weight_hh_l0": torch.zeros(4, 1)}, tmp_path / "other.safetensors")
    assert strength(folder) == strength(f"local-dir:{folder}") == CERTAIN
    assert strength("timm:no_such_model") == strength("hf-hub:timm/nothing") == CERTAIN
    assert strength(tmp_path / "bare.safetensors") == BY_NAMES
    assert strength(tmp_path / "other.safetensors") == 0
    assert strength("demo:lstm") == 0
    assert strength(changed(folder, model_type="timm_wrapper")) == 0
    assert strength(vit()) == strength(sequencer()) == CERTAIN
    assert strength(torch.nn.Linear(2, 2)) == 0
    assert strength(vit().get_submodule("blocks.0")) == 0
