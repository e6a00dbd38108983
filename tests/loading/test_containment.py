"""What a folder offers lies in the folder; what the user names himself is opened."""

import os
import socket

import pytest
import torch
from safetensors.torch import save_file

from memaudit.errors import SourceError
from memaudit.loading import files
from memaudit.loading.checkpoint import open_checkpoint
from memaudit.loading.files import open_within, plain_name, within

COMMIT, XET = "1f" * 20, "ab" * 32


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "model").mkdir()
    return tmp_path / "model"


@pytest.fixture
def outside(tmp_path):
    save_file({"w": torch.ones(2)}, tmp_path / "secret.safetensors")
    return tmp_path / "secret.safetensors"


def refusal(folder, name="model.safetensors"):
    with pytest.raises(SourceError) as caught:
        within(folder, name)
    assert caught.value.hint
    with pytest.raises(SourceError) as again, open_within(folder, name):
        pass
    assert again.value.code == caught.value.code
    return caught.value


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "../x.safetensors", "../../etc/passwd", "/etc/passwd", "a/b", "a/"),
        *("a\\b", "..\\x", "C:x", "C:\\x", "x\0y", "\0", "a\nb", "\x1b[31m", "a\u202eb", "\ud800"),
        "x" * 300,
    ],
)
def test_only_plain_names_are_looked_up(folder, name):
    with pytest.raises(SourceError) as caught:
        plain_name(name)
    assert caught.value.code == "E_PATH"
    assert refusal(folder, name).code == "E_PATH"


@pytest.mark.parametrize(
    "name", ["a", "..a", "modèle v1 (2).pt", "ab:c", "model-00001-of-00002.bin"]
)
def test_odd_but_plain_names_are_fine(folder, name):
    (folder / name).write_bytes(b"x")
    assert within(folder, name) == folder / name
    with open_within(folder, name) as file:
        assert file.read(0, 1) == b"x"


def test_a_missing_file_is_not_found(folder):
    assert refusal(folder).code == "E_NOT_FOUND"
    (folder / "model.safetensors").symlink_to("gone")
    assert refusal(folder).code == "E_NOT_FOUND"


def test_a_link_to_itself_is_refused(folder):
    (folder / "model.safetensors").symlink_to("model.safetensors")
    assert refusal(folder).code == "E_PATH"
    with pytest.raises(SourceError, match="E_PATH"):
        open_checkpoint(folder)


@pytest.mark.parametrize("absolute", [True, False])
def test_a_symbolic_link_outside_is_refused(folder, outside, absolute):
    (folder / "model.safetensors").symlink_to(outside if absolute else "../secret.safetensors")
    error = refusal(folder)
    assert error.code == "E_PATH"
    assert "leads outside the folder" in error.fact
    with pytest.raises(SourceError, match="E_PATH"):
        open_checkpoint(folder)


def test_a_link_through_a_folder_outside_is_refused(folder, tmp_path, outside):
    (folder / "sub").symlink_to(tmp_path)
    (folder / "model.safetensors").symlink_to("sub/secret.safetensors")
    assert refusal(folder).code == "E_PATH"


def test_a_folder_whose_name_begins_alike_is_outside(folder, tmp_path):
    (tmp_path / "model2").mkdir()
    (tmp_path / "model2" / "x").write_bytes(b"x")
    (folder / "model.safetensors").symlink_to("../model2/x")
    assert refusal(folder).code == "E_PATH"


def test_a_link_inside_the_folder_is_followed(folder):
    (folder / "weights").mkdir()
    save_file({"w": torch.ones(2)}, folder / "weights" / "v1")
    (folder / "model.safetensors").symlink_to("weights/v1")
    assert list(open_checkpoint(folder).tensors) == ["w"]


def test_a_folder_that_is_reached_by_a_link_is_fine(folder, tmp_path):
    save_file({"w": torch.ones(2)}, folder / "model.safetensors")
    (tmp_path / "latest").symlink_to(folder)
    assert list(open_checkpoint(tmp_path / "latest").tensors) == ["w"]


def test_a_second_hard_link_is_refused(folder, outside):
    os.link(outside, folder / "model.safetensors")
    error = refusal(folder)
    assert error.code == "E_PATH"
    assert "hard link" in error.fact


def test_a_file_that_the_user_names_is_opened_whatever_leads_to_it(folder, outside):
    os.link(outside, folder / "hard.safetensors")
    (folder / "soft.safetensors").symlink_to(outside)
    for name in ("hard", "soft"):
        assert list(open_checkpoint(folder / f"{name}.safetensors").tensors) == ["w"]


def test_what_is_no_file_is_refused(folder):
    (folder / "folder").mkdir()
    os.mkfifo(folder / "fifo")
    (folder / "device").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "socket"))
        for name in ("folder", "fifo", "device", "socket"):
            assert refusal(folder, name).code == "E_PATH"


def snapshot(cache, target, *, sub=""):
    """A snapshot as the hub's client leaves it, with one link."""
    place = cache / "models--org--name" / "snapshots" / COMMIT / sub
    place.mkdir(parents=True)
    (place / "model.safetensors").symlink_to(target)
    return place


@pytest.mark.parametrize(("sub", "up"), [("", "../.."), ("fp16", "../../..")])
def test_the_links_of_the_hub_cache_are_followed(tmp_path, sub, up):
    (tmp_path / "models--org--name" / "blobs").mkdir(parents=True)
    blob = tmp_path / "models--org--name" / "blobs" / "beef"
    save_file({"w": torch.ones(2)}, blob)
    os.link(blob, tmp_path / "kept")  # caches on one disk share their blobs
    place = snapshot(tmp_path, f"{up}/blobs/beef", sub=sub)
    found = open_checkpoint(place)
    assert found.files == (place / "model.safetensors",)


def test_blobs_that_repositories_share_are_followed(tmp_path):
    store = tmp_path / "blobs" / XET[:2] / XET
    store.parent.mkdir(parents=True)
    save_file({"w": torch.ones(2)}, store)
    (tmp_path / "models--org--name" / "blobs").mkdir(parents=True)
    (tmp_path / "models--org--name" / "blobs" / "beef").symlink_to(f"../../blobs/{XET[:2]}/{XET}")
    place = snapshot(tmp_path, "../../blobs/beef")
    assert refusal(place).code == "E_PATH"
    (tmp_path / "blobs" / files._SHARED_MARKER).write_text("1\n")
    assert list(open_checkpoint(place).tensors) == ["w"]


@pytest.mark.parametrize(
    "target",
    [
        "../../../secret.safetensors",
        "../../secret.safetensors",
        "../../blobs/below/secret.safetensors",
        "../../../models--org--other/blobs/secret.safetensors",
        "../../../blobs/secret.safetensors",
        "../../blobs/link",
    ],
)
def test_the_hub_cache_is_no_way_out(tmp_path, target):
    place = snapshot(tmp_path, target)
    file = tmp_path / "secret.safetensors"
    if not target.endswith("link"):
        file = place / target
        for folder in ("blobs/below", "../blobs", "../models--org--other/blobs"):
            (tmp_path / "models--org--name" / folder).mkdir(parents=True, exist_ok=True)
    save_file({"w": torch.ones(2)}, file)
    (tmp_path / "models--org--name" / "blobs").mkdir(exist_ok=True)
    (tmp_path / "models--org--name" / "blobs" / "link").symlink_to(tmp_path / "secret.safetensors")
    assert refusal(place).code == "E_PATH"


def test_a_file_that_is_exchanged_while_it_is_opened_is_noticed(folder, outside, monkeypatch):
    path = folder / "model.safetensors"
    save_file({"w": torch.ones(2)}, path)
    before = files.open_regular

    def exchanging(path):
        path.unlink()
        path.symlink_to(outside)
        return before(path)

    monkeypatch.setattr(files, "open_regular", exchanging)
    with pytest.raises(SourceError) as caught, open_within(folder, path.name):
        pass
    assert caught.value.code == "E_PATH"

    path.unlink()
    save_file({"w": torch.ones(2)}, path)  # and back again, before anybody looks
    monkeypatch.setattr(files, "open_regular", lambda path: before(outside))
    with pytest.raises(SourceError) as caught, open_within(folder, path.name):
        pass
    assert caught.value.code == "E_CHANGED"


@pytest.mark.skipif(not os.path.isdir(files._HANDLES), reason="the system does not say")
def test_a_folder_that_is_exchanged_and_put_back_is_no_way_out(folder, tmp_path, monkeypatch):
    """Every path is inside whenever it is resolved, and outside whenever it is used."""
    inside, aside, outside = folder / "sub", folder / "aside", tmp_path / "outside"
    for place in (inside, outside):
        place.mkdir()
        save_file({"w": torch.ones(2)}, place / "x")
    (folder / "model.safetensors").symlink_to("sub/x")
    resolve = os.path.realpath

    def between(path, **options):
        if aside.exists():
            inside.unlink()
            aside.rename(inside)
        found = resolve(path, **options)
        inside.rename(aside)
        inside.symlink_to(outside)
        return found

    monkeypatch.setattr(os.path, "realpath", between)
    with pytest.raises(SourceError) as caught, open_within(folder, "model.safetensors"):
        pass
    assert caught.value.code == "E_PATH"
    assert "leads outside the folder" in caught.value.fact
    monkeypatch.setattr(files, "_HANDLES", str(tmp_path / "gone"))
    with open_within(folder, "model.safetensors") as file:  # so far reach the names alone
        assert os.path.samestat(file.stat, (outside / "x").stat())
