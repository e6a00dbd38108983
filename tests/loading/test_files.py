"""What may be opened: regular files in the named folder, of a known format, that nobody changes."""

from __future__ import annotations

import json
import os
import socket
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import save, save_file

from memaudit.errors import ArgumentError, MachineError, MemauditError, SourceError
from memaudit.loading import access, checkpoint, files, open_checkpoint
from memaudit.loading.access import Access, available_memory, human_size
from memaudit.loading.configs import code_map
from memaudit.loading.files import read_beside, require_beside
from tests.loading.opening import opened, refusal, saved

# -- Files that are no checkpoint are named for what they are.


NOT_WEIGHTS = [
    (b"", "E_CORRUPT", "the file is empty"),
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "E_CORRUPT", "git-lfs"),
    (b"\n<!DOCTYPE html><html>404</html>", "E_CORRUPT", "web page"),
    (b"PK\x03\x04 half of it", "E_CORRUPT", "zip archive"),
    (b"\x89HDF\r\n\x1a\n....", "E_UNSAFE_FORMAT", "HDF5"),
    (b"\x08\x07\x12\x07pytorch\x1a\x03", "E_UNSAFE_FORMAT", "ONNX"),
    (b"GGUF....", "E_UNSUPPORTED", "GGUF"),
    (b"just some text", "E_CORRUPT", "not a checkpoint"),
    (b' {"error": "not found"}', "E_CORRUPT", "JSON"),
    (b"\x80\x04}.", "E_UNSAFE_FORMAT", "pickle"),
    (bytes(257) + b"ustar", "E_UNSUPPORTED", "tar"),
    (b"\x1c\0\0\0TFL3", "E_UNSUPPORTED", "TFLite"),
]


def test_a_file_that_is_no_checkpoint_is_named_for_what_it_is() -> None:
    for content, code, words in NOT_WEIGHTS:
        error = refusal(content)
        assert (words, error.code, error.stage) == (words, code, "open")
        assert words in error.fact
        assert words != "git-lfs" or error.hint == "run git lfs pull"


def test_a_suffix_names_what_the_bytes_do_not() -> None:
    for name in ("graph.onnx", "model.h5", "saved_model.pb"):
        assert refusal(b"\x01\x02\x03\x04 whatever", name).code == "E_UNSAFE_FORMAT"
    error = refusal(b"\x01\x02\x03\x04 whatever", "model.safetensors")
    assert "does not begin with a safetensors header" in error.fact


def test_keras_and_other_archives_are_named(tmp_path: Path) -> None:
    for member, code in (("model.weights.h5", "E_UNSAFE_FORMAT"), ("a.txt", "E_UNSUPPORTED")):
        with zipfile.ZipFile(tmp_path / "m.zip", "w") as archive:
            archive.writestr(member, b"x")
        assert refusal(tmp_path / "m.zip").code == code


def test_a_giant_file_is_refused_by_its_size(tmp_path: Path) -> None:
    """Eight terabytes that take no room."""
    path = tmp_path / "model.safetensors"
    with path.open("wb") as stream:
        stream.write(b"PK\x03\x04")
        stream.truncate(8 << 40)
    error = refusal(path)
    assert error.code == "E_LIMIT"
    assert "8.0 TB" in error.fact
    assert "max_bytes=8T" in error.hint


def test_a_disk_that_fails_is_the_machines_fault(tmp_path, monkeypatch) -> None:
    (tmp_path / "m.pt").write_bytes(saved({"w": torch.ones(2)}))
    for error in (OSError(5, "Input/output error"), PermissionError(13, "denied")):

        def failing(*_: object, error: OSError = error) -> None:
            raise error

        monkeypatch.setattr(files.os, "pread", failing)
        found = refusal(tmp_path / "m.pt")
        assert isinstance(found, MachineError)
        assert (found.code, found.exit_code) == ("E_DISK", 5)


# -- Nothing outside the named folder is read.

COMMIT, XET = "1f" * 20, "ab" * 32
NAME = "model.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    return tmp_path / "model"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    save_file({"w": torch.ones(2)}, tmp_path / "secret.safetensors")
    return tmp_path / "secret.safetensors"


def test_a_path_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    for name in ("none.pt", "none.pt/below", "a\0b", "x" * 5000):
        assert refusal(tmp_path / name).code == ("E_NOT_FOUND" if "none" in name else "E_PATH")


@pytest.mark.parametrize("kind", ["fifo", "socket", "device", "folder", "itself"])
def test_what_is_no_file_is_refused_without_waiting(folder: Path, kind: str) -> None:
    path = folder / NAME
    with socket.socket(socket.AF_UNIX) as server:
        match kind:
            case "fifo":
                os.mkfifo(path)
            case "socket":
                server.bind(str(path))
            case "device":
                path.symlink_to("/dev/zero")
            case "folder":
                path.mkdir()
            case "itself":
                path.symlink_to(NAME)
        assert refusal(folder).code == "E_PATH"
        if kind != "folder":
            assert refusal(path).code == "E_PATH"


@pytest.mark.parametrize("target", ["../secret.safetensors", "sub/secret.safetensors"])
def test_a_link_that_leads_outside_is_refused_unless_the_user_names_it(
    folder: Path, outside: Path, target: str
) -> None:
    (folder / "sub").symlink_to(outside.parent)
    (folder / NAME).symlink_to(target)
    error = refusal(folder)
    assert error.code == "E_PATH"
    assert "leads outside the folder" in error.fact
    assert list(open_checkpoint(folder / NAME).tensors) == ["w"]


def test_a_folder_whose_name_begins_alike_is_outside(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "model2").mkdir()
    save_file({"w": torch.ones(2)}, tmp_path / "model2" / "x")
    (folder / NAME).symlink_to("../model2/x")
    assert refusal(folder).code == "E_PATH"


def test_a_second_hard_link_is_refused_unless_the_user_names_it(folder, outside) -> None:
    os.link(outside, folder / NAME)
    error = refusal(folder)
    assert error.code == "E_PATH"
    assert "hard link" in error.fact
    assert list(open_checkpoint(folder / NAME).tensors) == ["w"]


def test_links_inside_the_folder_and_to_the_folder_are_followed(folder, tmp_path) -> None:
    (folder / "weights").mkdir()
    save_file({"w": torch.ones(2)}, folder / "weights" / "v1")
    (folder / NAME).symlink_to("weights/v1")
    (tmp_path / "latest").symlink_to(folder)
    assert list(open_checkpoint(tmp_path / "latest").tensors) == ["w"]


def test_a_link_to_nothing_is_not_found(folder: Path) -> None:
    (folder / NAME).symlink_to("gone")
    assert refusal(folder).code == "E_NOT_FOUND"


def snapshot(cache: Path, target: str, *, sub: str = "") -> Path:
    """A snapshot as the hub's client leaves it, with one link."""
    place = cache / "models--org--name" / "snapshots" / COMMIT / sub
    place.mkdir(parents=True)
    (place / NAME).symlink_to(target)
    return place


def test_the_links_of_the_hub_cache_are_followed(tmp_path: Path) -> None:
    (tmp_path / "models--org--name" / "blobs").mkdir(parents=True)
    blob = tmp_path / "models--org--name" / "blobs" / "beef"
    save_file({"w": torch.ones(2)}, blob)
    os.link(blob, tmp_path / "kept")  # caches on one disk share their blobs
    place = snapshot(tmp_path, "../../../blobs/beef", sub="fp16")
    assert open_checkpoint(place).files == (place / NAME,)


def test_blobs_that_repositories_share_are_followed(tmp_path: Path) -> None:
    store = tmp_path / "blobs" / XET[:2] / XET
    store.parent.mkdir(parents=True)
    save_file({"w": torch.ones(2)}, store)
    (tmp_path / "models--org--name" / "blobs").mkdir(parents=True)
    (tmp_path / "models--org--name" / "blobs" / "beef").symlink_to(f"../../blobs/{XET[:2]}/{XET}")
    place = snapshot(tmp_path, "../../blobs/beef")
    assert refusal(place).code == "E_PATH"
    (tmp_path / "blobs" / ".huggingface-shared-blobs").write_text("1\n")
    assert list(open_checkpoint(place).tensors) == ["w"]


@pytest.mark.parametrize("target", ["../../secret", "../../../models--other/blobs/x"])
def test_the_hub_cache_is_no_way_out(tmp_path: Path, target: str) -> None:
    place = snapshot(tmp_path, target)
    (tmp_path / "models--other" / "blobs").mkdir(parents=True)
    (tmp_path / "models--org--name" / "blobs").mkdir(parents=True)
    save_file({"w": torch.ones(2)}, place / target)
    assert refusal(place).code == "E_PATH"


def test_a_file_that_is_exchanged_while_it_is_opened_is_noticed(folder, outside, monkeypatch):
    path = folder / NAME
    save_file({"w": torch.ones(2)}, path)
    before = files.open_regular

    def exchanging(path: Path, **options: object):
        path.unlink()
        path.symlink_to(outside)
        return before(path, **options)

    monkeypatch.setattr(files, "open_regular", exchanging)
    assert refusal(folder).code in ("E_PATH", "E_CHANGED")


def test_small_files_beside_the_weights_are_read_whole_or_not_at_all(tmp_path, outside) -> None:
    (tmp_path / "a.json").write_bytes(b"[1]")
    assert read_beside(tmp_path, "a.json", most=3) == b"[1]"
    assert read_beside(tmp_path, "b.json", most=3) is None
    assert require_beside(tmp_path, ["a.json", "b.json"], most=3) == ("a.json",)
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "a.json").symlink_to(outside)
    for place, most, code in ((tmp_path, 2, "E_LIMIT"), (tmp_path / "below", 9999, "E_PATH")):
        for read in (read_beside, lambda f, n, most: require_beside(f, [n], most=most)):
            with pytest.raises(SourceError) as caught:
                read(place, "a.json", most=most)
            assert caught.value.code == code


def test_code_is_named_and_not_run(tmp_path: Path) -> None:
    assert code_map(tmp_path) == {}
    named = {"AutoModel": "own.Own", "AutoTokenizer": ["own.Words", None]}
    for stated, expected in ((named, {"AutoModel": "own.Own"}), ("own.Own", {})):
        (tmp_path / "config.json").write_text(json.dumps({"auto_map": stated}))
        assert code_map(tmp_path) == expected


# -- Files that change under the audit: while they are read, and until its end.

LONG_AGO = 10**18


@pytest.fixture(params=["safetensors", "torch"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A file that nobody touched for a long time: the clock of a disk ticks slowly."""
    path = tmp_path / "model.bin"
    weights = {"w": torch.arange(64.0), "v": torch.ones(3)}
    path.write_bytes(save(weights) if request.param == "safetensors" else saved(weights))
    os.utime(path, ns=(LONG_AGO, LONG_AGO))
    return path


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def grow(path: Path) -> None:
    with path.open("ab") as stream:
        stream.write(b"x")


def rewrite(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    with path.open("r+b") as stream:
        stream.write(data)


def rewrite_in_secret(path: Path) -> None:
    rewrite(path)
    os.utime(path, ns=(LONG_AGO, LONG_AGO))


def replace(path: Path) -> None:
    path.unlink()
    path.write_bytes(b"another file")


CHANGES = [truncate, grow, rewrite, rewrite_in_secret]


@pytest.mark.parametrize("change", [truncate, rewrite])
@pytest.mark.parametrize("when", ["before the hash", "after the hash"])
def test_a_change_while_the_file_is_read_is_noticed(path, monkeypatch, change, when) -> None:
    if when == "before the hash":
        monkeypatch.setattr(checkpoint, "step", lambda name: name == "open.read" and change(path))
    else:
        digest = checkpoint.digest
        monkeypatch.setattr(checkpoint, "digest", lambda *a: (digest(*a), change(path))[0])
    assert refusal(path).code in ("E_CHANGED", "E_CORRUPT")


@pytest.mark.parametrize("change", [*CHANGES, replace])
def test_a_change_during_the_audit_is_reported(path: Path, change) -> None:
    found = open_checkpoint(path)
    assert found.changes() == []
    change(path)
    (error,) = found.changes()
    assert (error.code, error.stage, error.source) == ("E_CHANGED", "after", str(path))
    assert "changed during the audit" in error.fact
    assert found.sha256 in error.fact


def test_a_file_that_was_removed_or_became_a_fifo_is_reported(path: Path) -> None:
    found = open_checkpoint(path)
    path.unlink()
    assert "removed" in found.changes()[0].fact
    os.mkfifo(path)
    assert [error.code for error in found.changes()] == ["E_CHANGED"]


def test_the_same_bytes_in_a_new_file_are_no_change(path: Path) -> None:
    found = open_checkpoint(path)
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data)
    assert found.changes() == []


def test_a_very_large_file_is_read_again_only_when_it_was_touched(path, monkeypatch) -> None:
    monkeypatch.setattr(files, "LARGEST_READ_AGAIN", 0)
    found = open_checkpoint(path)
    read = []
    digest = files.digest
    monkeypatch.setattr(files, "digest", lambda file: read.append(file.path) or digest(file))
    assert (found.changes(), read) == ([], [])
    os.utime(path)
    assert (found.changes(), read) == ([], [path])
    rewrite(path)
    assert [error.code for error in found.changes()] == ["E_CHANGED"]


# -- How many bytes may be opened: what the user says, or the memory that is there.

GIGABYTE = 1 << 30
MEMINFO = "MemTotal:       32000000 kB\nMemAvailable:   20971520 kB\nSwapFree: 0 kB\n"


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ({}, 20),
        ({"sys/fs/cgroup/memory.max": "max\n"}, 20),
        ({"sys/fs/cgroup/memory.max": f"{4 * GIGABYTE}\n"}, 4),
        ({"sys/fs/cgroup/memory/memory.limit_in_bytes": f"{2 * GIGABYTE}\n"}, 2),
    ],
)
def test_the_smallest_limit_of_memory_counts(tmp_path: Path, texts, expected: int) -> None:
    for name, text in {"proc/meminfo": MEMINFO, **texts}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert available_memory(system=tmp_path) == expected * GIGABYTE


def test_a_file_that_has_to_be_unpacked_must_fit_into_memory(tmp_path, monkeypatch) -> None:
    import numpy as np

    np.savez_compressed(tmp_path / "m.npz", w=np.arange(1000.0))
    save_file({"w": torch.ones(2000)}, tmp_path / "m.safetensors")
    monkeypatch.setattr(access, "available_memory", lambda: 5000)
    error = refusal(tmp_path / "m.npz")
    assert (error.code, "max_bytes=8K" in error.hint) == ("E_LIMIT", True)
    assert open_checkpoint(tmp_path / "m.safetensors")  # mapped, not copied
    with pytest.raises(MemauditError, match="limit is 1000 bytes"):
        opened((tmp_path / "m.safetensors").read_bytes(), max_bytes=1000)


def test_sizes_are_said_as_people_say_them() -> None:
    said = {0: "0 bytes", 1023: "1023 bytes", 1536: "1.5 KB", 1 << 40: "1.0 TB"}
    assert {size: human_size(size) for size in said} == said


@pytest.mark.parametrize("limits", [{"max_bytes": 0}, {"max_header": "64X"}, {"timeout": -1}])
def test_limits_that_are_none_are_bad_arguments(limits: dict) -> None:
    with pytest.raises(ArgumentError):
        access.access_from(limits)


def test_everything_is_safe_unless_it_is_asked_for(monkeypatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    assert access.access_from({}) == Access()
