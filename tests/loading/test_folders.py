"""Which weights of a folder or a file are opened."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save, save_file

from memaudit.errors import MemauditError, SourceError
from memaudit.loading import open_checkpoint
from memaudit.loading.access import Access, Limits
from tests.loading import msgpack_writing
from tests.loading.opening import opened, refusal, same_weights, saved

FORMATS = (".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".npz", ".msgpack")

# -- Which file of a folder is the model, and when the user is asked.


def place(folder: Path, name: str) -> None:
    """A weight file of this name, an index with its shard, or any other file."""
    path = folder / name
    weights = {"w": torch.ones(2)}
    if name.endswith(".index.json"):
        whole = Path(name.removesuffix(".index.json"))
        shard = f"{whole.stem}-00001-of-00001{whole.suffix}"
        place(folder, shard)
        path.write_text(json.dumps({"weight_map": {"w": shard}}))
    elif name.lower().endswith(".safetensors"):
        path.write_bytes(save(weights))
    elif name.endswith(".npz"):
        np.savez(path, w=np.ones(2))
    elif name.endswith(".msgpack"):
        path.write_bytes(msgpack_writing.flax(weights))
    elif name.lower().endswith(FORMATS):
        path.write_bytes(saved(weights))
    else:
        path.write_text("{}")


SAFE_SHARD = "model-00001-of-00001.safetensors"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["model.safetensors", "pytorch_model.bin", "model.pt"], "model.safetensors"),
        (["model.pt", "io.safetensors", "meta.json"], "model.pt"),
        (["pytorch_model.bin", "optimizer.pt", "training_args.bin"], "pytorch_model.bin"),
        (["sampler_net.bin", "sampler.bin", "sampler_1.bin"], "sampler_net.bin"),
        (["last.ckpt", "io.safetensors"], "last.ckpt"),
        (["tiny.safetensors", "tiny.bin"], "tiny.safetensors"),
        (["MODEL.PT"], "MODEL.PT"),
        (["net.npz", "params.msgpack"], "net.npz"),
        (["model.safetensors", "model.safetensors.index.json"], "model.safetensors"),
        (["pytorch_model.bin", "model.safetensors.index.json", "x.safetensors"], SAFE_SHARD),
        (["pytorch_model.bin.index.json", "model.safetensors.index.json"], SAFE_SHARD),
        (["unet.safetensors.index.json", "unet.bin"], "unet-00001-of-00001.safetensors"),
        (["tf_model.h5.index.json", "model.pt"], "model.pt"),
    ],
)
def test_the_model_is_chosen(tmp_path: Path, names: list[str], expected: str) -> None:
    for name in names:
        place(tmp_path, name)
    assert open_checkpoint(tmp_path).files == (tmp_path / expected,)


def test_files_that_were_passed_over_are_said(tmp_path: Path) -> None:
    for name in ("model.pt", "io.safetensors"):
        place(tmp_path, name)
    assert "model.pt was opened; not io.safetensors" in open_checkpoint(tmp_path).notes


@pytest.mark.parametrize(
    ("names", "code", "words"),
    [
        (["a\x1b[31m.pt", "b\u202e.pt"], "E_PATH", "a[31m.pt, b.pt"),
        (["model-00001-of-00002.safetensors"], "E_NOT_FOUND", "model.safetensors.index.json"),
        (["x-00002-of-00003.bin", "x-00001-of-00003.bin"], "E_NOT_FOUND", "2 shards"),
        (["saved_model.pb"], "E_UNSAFE_FORMAT", "SavedModel"),
        (["model.onnx"], "E_UNSUPPORTED", "model.onnx"),
        (["_METADATA"], "E_UNSUPPORTED", "Orbax"),
        (["readme.md", "optimizer.pt"], "E_NOT_FOUND", "no weights"),
    ],
)
def test_a_folder_without_one_answer_is_refused(tmp_path, names, code, words) -> None:
    for name in names:
        place(tmp_path, name)
    error = refusal(tmp_path)
    assert (error.code, words in error.fact) == (code, True)


def test_the_folder_of_a_training_suggests_its_newest_checkpoint(tmp_path) -> None:
    for name in ("checkpoint-500", "checkpoint-1000", "checkpoint-best", "runs"):
        (tmp_path / name).mkdir()
        place(tmp_path / name, "model.pt")
    error = refusal(tmp_path)
    assert error.code == "E_NOT_FOUND"
    assert "holds 2 checkpoints of a training" in error.fact
    assert str(tmp_path / "checkpoint-1000") in error.hint
    assert open_checkpoint(tmp_path / "checkpoint-1000").tensors


@pytest.mark.parametrize("damage", ["folder", "zeros", "shard"])
def test_damaged_weights_are_not_replaced_by_others_beside_them(tmp_path, damage: str) -> None:
    place(tmp_path, "pytorch_model.bin")
    path = tmp_path / "model.safetensors"
    if damage == "folder":
        path.mkdir()
    elif damage == "zeros":
        path.write_bytes(bytes(64))
    else:
        split(tmp_path)
        os.truncate(tmp_path / SECOND, 80)
    error = refusal(tmp_path)
    assert error.code == ("E_PATH" if damage == "folder" else "E_CORRUPT")


def test_a_folder_beside_the_weights_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "last.ckpt").mkdir()
    assert "last.ckpt is a folder" in refusal(tmp_path).fact
    place(tmp_path, "epoch=3.ckpt")
    assert list(open_checkpoint(tmp_path).tensors) == ["w"]


@pytest.mark.shared
def test_every_fixture_opens_from_its_folder_and_from_its_file(shared: Path) -> None:
    folders = sorted({path.parent for path in (shared / "fixtures").rglob("meta.json")})
    assert folders
    for folder in folders:
        whole = open_checkpoint(folder)
        assert whole.tensors
        (file,) = whole.files
        assert file.name != "io.safetensors"
        alone = open_checkpoint(file)
        assert same_weights(alone, whole.tensors)
        assert alone.sha256 == whole.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
        assert alone.config == whole.config


# -- The config beside a file that the user names.


def test_a_config_beside_a_file_is_read_and_said(tmp_path: Path) -> None:
    place(tmp_path, "m.pt")
    assert (found := open_checkpoint(tmp_path / "m.pt")).config == {}
    assert found.config_path is None
    (tmp_path / "config.json").write_text('{"hidden_size": 4}')
    found = open_checkpoint(tmp_path / "m.pt")
    assert found.config == {"hidden_size": 4}
    assert found.config_path == tmp_path / "config.json"
    assert "config.json beside the file was read" in found.notes


@pytest.mark.parametrize("text", ['{"vocab_size": -1}', None])
def test_an_odd_config_refuses_its_folder_but_no_file_that_is_named(tmp_path, text) -> None:
    place(tmp_path, "m.pt")
    if text is None:
        (tmp_path / "config.json").symlink_to("gone")
    else:
        (tmp_path / "config.json").write_text(text)
    error = refusal(tmp_path)
    found = open_checkpoint(tmp_path / "m.pt")
    assert (found.config, found.config_path) == ({}, None)
    assert f"config.json beside the file was not read: {error.fact}" in found.notes


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("m.pt", '{"quantization_config": {"quant_method": "gptq"}}'),
        ("adapter_model.safetensors", "{}"),
    ],
)
def test_quantized_weights_and_adapters_stay_refused_when_they_are_named(tmp_path, name, config):
    place(tmp_path, name)
    beside = "adapter_config.json" if "adapter" in name else "config.json"
    (tmp_path / beside).write_text(config)
    assert refusal(tmp_path / name).code == "E_UNSUPPORTED"


# -- Split weights: the index is believed about nothing, and all of it must be there.

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"
WEIGHTS = {"a": torch.arange(4.0), "b": torch.ones(2, 2), "c": torch.zeros(3)}


def split(folder: Path, *, weight_map: dict[str, str] | None = None, again: str = "") -> Path:
    """A folder with two shards and their index; `again` is in the second shard as well."""
    folder.mkdir(exist_ok=True)
    shards = {FIRST: "ab", SECOND: f"c{again}"}
    for name, tensors in shards.items():
        save_file({t: WEIGHTS[t] for t in tensors}, folder / name, metadata={"first": tensors[0]})
    honest = {"a": FIRST, "b": FIRST, "c": SECOND}
    (folder / INDEX).write_text(json.dumps({"weight_map": weight_map or honest}))
    return folder


def test_all_shards_are_opened_together(tmp_path: Path) -> None:
    found = open_checkpoint(split(tmp_path))
    assert list(found.tensors) == ["a", "b", "c"]
    assert same_weights(found, WEIGHTS)
    assert found.files == (tmp_path / FIRST, tmp_path / SECOND)
    assert found.metadata == {"first": "a"}
    assert f"2 shards were opened by {INDEX}" in found.notes
    digests = [hashlib.sha256((tmp_path / n).read_bytes()).hexdigest() for n in (FIRST, SECOND)]
    lines = f"{FIRST} {digests[0]}\n{SECOND} {digests[1]}\n"
    assert found.sha256 == hashlib.sha256(lines.encode()).hexdigest()
    (tmp_path / SECOND).write_bytes((tmp_path / FIRST).read_bytes())
    assert [error.source for error in found.changes()] == [str(tmp_path / SECOND)]


def test_an_index_that_leads_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    place(tmp_path, "secret.safetensors")
    for name in (
        *("../secret.safetensors", "/secret.safetensors", "a\\b.safetensors", "x" * 300, ""),
        *("x\0.safetensors", "..", "C:x.safetensors", "\x1b[31m.safetensors"),
    ):
        error = refusal(split(tmp_path / "model", weight_map={"w": name}))
        assert (name, error.code) == (name, "E_PATH")
        assert error.source.endswith(INDEX)


@pytest.mark.parametrize("name", [INDEX, SECOND])
def test_an_index_or_a_shard_outside_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    folder = split(tmp_path / "model")
    (folder / name).rename(tmp_path / name)
    (folder / name).symlink_to(tmp_path / name)
    assert refusal(folder).code == "E_PATH"
    (folder / name).unlink()
    os.link(tmp_path / name, folder / name)
    assert refusal(folder).code == "E_PATH"


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    (split(tmp_path) / SECOND).unlink()
    error = refusal(tmp_path)
    assert error.code == "E_NOT_FOUND"
    assert f"{SECOND} is missing: the download is not complete" in error.fact


def test_a_shard_that_is_named_itself_is_opened_and_said(tmp_path: Path) -> None:
    found = open_checkpoint(split(tmp_path) / FIRST)
    assert list(found.tensors) == ["a", "b"]
    assert any("one shard of several" in note for note in found.notes)


@pytest.mark.parametrize(
    ("weight_map", "again", "words"),
    [
        ({"a": FIRST, "b": FIRST, "x": SECOND}, "", "x is missing from it; c is not named for it"),
        (None, "a", "a is not named for it"),
        ({"a": FIRST, "b": FIRST, "c": "other.bin"}, "", "no .safetensors file"),
    ],
)
def test_shards_that_are_not_what_the_index_says_are_refused(tmp_path, weight_map, again, words):
    error = refusal(split(tmp_path, weight_map=weight_map, again=again))
    assert (error.code, words in error.fact) == ("E_WEIGHTS", True)


def test_shards_of_two_formats_are_refused(tmp_path: Path) -> None:
    (split(tmp_path) / SECOND).write_bytes(saved({"c": torch.ones(3)}))
    assert refusal(tmp_path).code == "E_WEIGHTS"


def test_an_index_that_is_none_is_refused(tmp_path: Path) -> None:
    twice = f'{{"weight_map": {{"a": "{FIRST}", "a": "{SECOND}"}}}}'
    for text in ("", "null", '{"weight_map": {}}', '{"weight_map": {"a": 1}}', twice, "[" * 99_999):
        (split(tmp_path) / INDEX).write_text(text)
        assert (text[:30], refusal(tmp_path).code) == (text[:30], "E_CORRUPT")


def test_the_limits_hold_for_the_index_and_for_all_shards_together(tmp_path: Path) -> None:
    split(tmp_path)
    size = sum((tmp_path / name).stat().st_size for name in (FIRST, SECOND))
    for limits in (Limits(max_header=20), Limits(max_tensors=2), Limits(max_bytes=size - 1)):
        with pytest.raises(SourceError) as caught:
            open_checkpoint(tmp_path, Access(limits=limits))
        assert caught.value.code == "E_LIMIT"
    assert open_checkpoint(tmp_path, Access(limits=Limits(max_bytes=size)))
    os.truncate(tmp_path / SECOND, 8 << 40)
    assert "8.0 TB" in refusal(tmp_path).fact


def test_progress_of_reading_runs_over_all_shards(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("memaudit.loading.files._REPORT_EVERY", 1)
    seen: list[tuple[str, int, int]] = []
    split(tmp_path)
    open_checkpoint(tmp_path, Access(progress=lambda *step: seen.append(step)))
    total = sum((tmp_path / name).stat().st_size for name in (FIRST, SECOND))
    assert {stage for stage, _, _ in seen} == {"reading"}
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert seen[-1] == ("reading", total, total)


# -- The weights are found wherever trainers put them, and never an optimizer's state.

W = torch.ones(3, 3)
STATE = {"rnn.weight_hh_l0": W, "rnn.bias_hh_l0": torch.ones(3)}
OTHER = {"rnn.weight_hh_l0": torch.zeros(3, 3)}
OPTIMIZER = {"state": {0: {"exp_avg": W, "step": torch.tensor(1.0)}}, "param_groups": [{"lr": 1}]}


@pytest.mark.parametrize(
    ("content", "container"),
    [
        (STATE, ""),
        ({"model_state_dict": STATE, "optimizer_state_dict": OPTIMIZER}, "model_state_dict"),
        ({"state_dict": STATE, "hyper_parameters": {"n": 1}, "optimizer": [W]}, "state_dict"),
        ({"model": STATE, "ema": OTHER}, "model"),
        ({"ema": STATE, "epoch": 1}, "ema"),
        ({"model": {"state_dict": STATE}}, "model.state_dict"),
        ({"my_rnn": STATE, "opt": OPTIMIZER, "scheduler": {"a": W}}, "my_rnn"),
        ({"discriminator": OTHER, "model": STATE}, "model"),
    ],
)
def test_the_weights_are_found(content: Any, container: str) -> None:
    found = opened(saved(content))
    assert found.container == container
    assert list(found.tensors) == list(STATE)
    assert same_weights(found, STATE)


@pytest.mark.parametrize(
    ("content", "names", "note"),
    [
        (
            {"model": {"w": W}, "disc": {"w": W}, "mean": W},
            ["w"],
            "the weights are model; left out: disc, mean",
        ),
        ({"ema": {"w": W}}, ["w"], "only averaged weights are there: ema was opened"),
        (
            {"en": {"w": W}, "de": {"w": W}, "en_opt": OPTIMIZER},
            ["en.w", "de.w"],
            "several modules were opened together: en, de",
        ),
        ({"params": {"net": {"w": W}, "head": {"w": W}}}, ["net.w", "head.w"], ""),
        ({"w": W, "hidden": [W, W]}, ["w"], "lists of unnamed tensors were left out: hidden"),
        (
            {"model": {"w": W}, "x\x1b[31m\u202e": {"w": W}},
            ["w"],
            "the weights are model; left out: x[31m",
        ),
    ],
)
def test_what_was_passed_over_is_said(content: Any, names: list[str], note: str) -> None:
    found = opened(saved(content))
    assert list(found.tensors) == names
    assert not note or note in found.notes


def test_plain_values_beside_the_weights_become_metadata() -> None:
    content = {
        "epoch": 3,
        "name": "tiny",
        "state_dict": STATE,
        "hyper_parameters": {"hidden": 8, "mean": W, "rate": float("nan"), "list": [1, W]},
        "lr_schedulers": [{"a": 1}],
        "vocabulary": {str(i): i for i in range(5000)},
    }
    metadata = opened(saved(content)).metadata
    assert set(metadata) == {"epoch", "name", "hyper_parameters"}
    assert (metadata["epoch"], metadata["name"]) == ("3", "tiny")
    assert json.loads(metadata["hyper_parameters"]) == {"hidden": 8, "list": [1, None]}


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (W, "E_UNSUPPORTED"),
        ([W, W], "E_UNSUPPORTED"),
        ({0: W, 1: W}, "E_UNSUPPORTED"),
        (OPTIMIZER, "E_WEIGHTS"),
        ({"epoch": 3, "optimizer_state_dict": OPTIMIZER}, "E_WEIGHTS"),
        ({"rnn": {"w": W}, "rnn.w": W}, "E_CORRUPT"),
    ],
)
def test_what_is_no_model_is_refused(content: Any, code: str) -> None:
    with pytest.raises(MemauditError) as caught:
        opened(saved(content))
    assert caught.value.code == code
