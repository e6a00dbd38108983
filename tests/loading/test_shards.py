"""Split weights: the index is believed about nothing, and all of it must be there."""

import hashlib
import json
import os

import pytest
import torch
from safetensors.torch import save_file

from memaudit.errors import SourceError
from memaudit.loading.access import Access, Limits
from memaudit.loading.checkpoint import open_checkpoint

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"
WEIGHTS = {"a": torch.arange(4.0), "b": torch.ones(2, 2), "c": torch.zeros(3)}


def split(folder, *, weight_map=None, index=INDEX, shards=None, **more):
    """A folder with two shards and their index."""
    shards = shards or {FIRST: ("a", "b"), SECOND: ("c",)}
    for name, tensors in shards.items():
        content = {tensor: WEIGHTS[tensor] for tensor in tensors}
        if name.endswith(".safetensors"):
            save_file(content, folder / name, metadata={"format": "pt", "first": tensors[0]})
        else:
            torch.save(content, folder / name)
    if weight_map is None:
        weight_map = {tensor: name for name, tensors in shards.items() for tensor in tensors}
    (folder / index).write_text(json.dumps({"metadata": {}, "weight_map": weight_map, **more}))
    return folder


def refusal(folder, access=None):
    with pytest.raises(SourceError) as caught:
        open_checkpoint(folder, access or Access())
    assert caught.value.hint
    return caught.value


def test_all_shards_are_opened_together(tmp_path):
    found = open_checkpoint(split(tmp_path))
    assert list(found.tensors) == ["a", "b", "c"]
    for name, tensor in found.tensors.items():
        assert torch.equal(tensor, WEIGHTS[name])
    assert found.files == (tmp_path / FIRST, tmp_path / SECOND)
    assert found.format == "safetensors"
    assert found.metadata == {"format": "pt", "first": "a"}
    assert any("2 shards" in note for note in found.notes)


def test_the_joint_digest_is_that_of_the_list_of_digests(tmp_path):
    found = open_checkpoint(split(tmp_path))
    lines = [
        f"{name} {hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()}\n"
        for name in (FIRST, SECOND)
    ]
    assert found.sha256 == hashlib.sha256("".join(lines).encode()).hexdigest()


def test_one_shard_has_its_own_digest(tmp_path):
    found = open_checkpoint(split(tmp_path, shards={"model-00001-of-00001.safetensors": ("a",)}))
    assert found.sha256 == hashlib.sha256(found.files[0].read_bytes()).hexdigest()


def test_shards_of_torch_are_opened(tmp_path):
    shards = {f"pytorch_model-0000{i}-of-00002.bin": (name,) for i, name in ((1, "a"), (2, "b"))}
    found = open_checkpoint(split(tmp_path, shards=shards, index="pytorch_model.bin.index.json"))
    assert found.format == "torch"
    assert list(found.tensors) == ["a", "b"]


def test_safetensors_shards_win_over_a_torch_file(tmp_path):
    torch.save({"evil": torch.ones(1)}, tmp_path / "pytorch_model.bin")
    assert set(open_checkpoint(split(tmp_path)).tensors) == set(WEIGHTS)


def test_damaged_shards_are_not_replaced_by_a_torch_file(tmp_path):
    torch.save({"evil": torch.ones(1)}, tmp_path / "pytorch_model.bin")
    split(tmp_path)
    (tmp_path / SECOND).write_bytes((tmp_path / SECOND).read_bytes()[:-1])
    error = refusal(tmp_path)
    assert error.code == "E_CORRUPT"
    assert error.source.endswith(SECOND)


@pytest.mark.parametrize(
    "name",
    [
        *("../secret.safetensors", "/secret.safetensors", "a/b.safetensors", "a\\b.safetensors"),
        *("x\0.safetensors", "..", "", "C:x.safetensors", "\x1b[31m.safetensors"),
    ],
)
def test_an_index_that_leads_out_of_the_folder_is_refused(tmp_path, name):
    folder = tmp_path / "model"
    folder.mkdir()
    save_file({"a": torch.ones(1)}, tmp_path / "secret.safetensors")
    error = refusal(split(folder, weight_map={"a": name}))
    assert error.code == "E_PATH"
    assert error.source.endswith(INDEX)


def test_a_shard_outside_the_folder_is_refused(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    split(folder)
    (folder / SECOND).rename(tmp_path / SECOND)
    (folder / SECOND).symlink_to(tmp_path / SECOND)
    assert refusal(folder).code == "E_PATH"
    (folder / SECOND).unlink()
    os.link(tmp_path / SECOND, folder / SECOND)
    assert refusal(folder).code == "E_PATH"


def test_an_index_outside_the_folder_is_refused(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    split(folder)
    (folder / INDEX).rename(tmp_path / INDEX)
    (folder / INDEX).symlink_to(tmp_path / INDEX)
    assert refusal(folder).code == "E_PATH"


def test_a_missing_shard_is_named(tmp_path):
    split(tmp_path)
    (tmp_path / SECOND).unlink()
    error = refusal(tmp_path)
    assert error.code == "E_NOT_FOUND"
    assert SECOND in error.fact
    assert "not complete" in error.fact


def test_shards_without_an_index_are_refused(tmp_path):
    split(tmp_path)
    (tmp_path / INDEX).unlink()
    error = refusal(tmp_path)
    assert error.code == "E_NOT_FOUND"
    assert INDEX in error.fact


def test_a_shard_that_is_named_itself_is_opened_and_said(tmp_path):
    found = open_checkpoint(split(tmp_path) / FIRST)
    assert list(found.tensors) == ["a", "b"]
    assert any("one shard of several" in note for note in found.notes)


@pytest.mark.parametrize(
    ("weight_map", "words"),
    [
        ({"a": FIRST, "b": FIRST, "c": SECOND, "d": SECOND}, "d is missing from it"),
        ({"a": FIRST, "c": SECOND}, "b is not named for it"),
        ({"a": FIRST, "b": SECOND, "c": SECOND}, "b is not named for it"),
        ({"a": FIRST, "b": FIRST, "x": SECOND}, "x is missing from it; c is not named for it"),
    ],
)
def test_shards_that_are_not_what_the_index_says_are_refused(tmp_path, weight_map, words):
    error = refusal(split(tmp_path, weight_map=weight_map))
    assert error.code == "E_WEIGHTS"
    assert words in error.fact


def test_one_tensor_in_two_shards_is_refused(tmp_path):
    weight_map = {"a": FIRST, "b": FIRST, "c": SECOND}
    shards = {FIRST: ("a", "b"), SECOND: ("a", "c")}
    assert refusal(split(tmp_path, shards=shards, weight_map=weight_map)).code == "E_WEIGHTS"


def test_shards_of_two_formats_are_refused(tmp_path):
    split(tmp_path)
    torch.save({"c": torch.ones(3)}, tmp_path / SECOND)
    assert refusal(tmp_path).code == "E_WEIGHTS"
    split(tmp_path, weight_map={"a": FIRST, "b": FIRST, "c": "other.bin"})
    assert refusal(tmp_path).code == "E_WEIGHTS"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "E_CORRUPT"),
        ("null", "E_CORRUPT"),
        ("[]", "E_CORRUPT"),
        ("{}", "E_CORRUPT"),
        ('{"weight_map": []}', "E_CORRUPT"),
        ('{"weight_map": {}}', "E_CORRUPT"),
        ('{"weight_map": {"a": 1}}', "E_CORRUPT"),
        ('{"weight_map": {"a": ["x.safetensors"]}}', "E_CORRUPT"),
        (f'{{"weight_map": {{"a": "{FIRST}", "a": "{SECOND}"}}}}', "E_CORRUPT"),
        ('{"weight_map": {}, "weight_map": {}}', "E_CORRUPT"),
        ("[" * 100_000, "E_CORRUPT"),
        ("\udcff", "E_CORRUPT"),
    ],
)
def test_an_index_that_is_none_is_refused(tmp_path, text, code):
    split(tmp_path)
    (tmp_path / INDEX).write_text(text, errors="surrogateescape")
    assert refusal(tmp_path).code == code


def test_the_limits_hold_for_the_index_and_for_all_shards_together(tmp_path):
    split(tmp_path)
    sizes = [(tmp_path / name).stat().st_size for name in (FIRST, SECOND)]
    for limits in (
        Limits(max_header=20),
        Limits(max_tensors=2),
        Limits(max_bytes=sum(sizes) - 1),
    ):
        assert refusal(tmp_path, Access(limits=limits)).code == "E_LIMIT"
    assert open_checkpoint(tmp_path, Access(limits=Limits(max_bytes=sum(sizes))))


def test_a_giant_shard_is_refused_before_any_is_read(tmp_path):
    split(tmp_path)
    with (tmp_path / SECOND).open("r+b") as stream:
        stream.truncate(8 << 40)
    error = refusal(tmp_path)
    assert error.code == "E_LIMIT"
    assert "8.0 TB" in error.fact


def test_reading_is_told_over_all_shards(tmp_path, monkeypatch):
    monkeypatch.setattr("memaudit.loading.files._REPORT_EVERY", 1)
    seen = []
    split(tmp_path)
    open_checkpoint(tmp_path, Access(progress=lambda *step: seen.append(step)))
    total = sum((tmp_path / name).stat().st_size for name in (FIRST, SECOND))
    assert {stage for stage, _, _ in seen} == {"reading"}
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert seen[-1] == ("reading", total, total)
