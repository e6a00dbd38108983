"""Files and folders on disk: what may be opened, and what happens to it meanwhile."""

from __future__ import annotations

import io
import json
import os
import socket
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save, save_file

from memaudit.errors import MachineError, MemauditError, SourceError
from memaudit.loading import access, checkpoint, files
from memaudit.loading.access import Access, Limits, available_memory, human_size, require_room
from memaudit.loading.checkpoint import open_checkpoint
from memaudit.loading.configs import code_map
from memaudit.loading.files import open_within, plain_name, read_beside, require_beside, within

# -- Bad days: each is one sentence with a code and a next step.


def refusal(path, kind=SourceError):
    with pytest.raises(kind) as caught:
        open_checkpoint(path)
    assert caught.value.hint
    assert caught.value.stage == "open"
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        (b"", "E_CORRUPT", "the file is empty"),
        (b"\x80", "E_CORRUPT", "not a checkpoint"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "E_CORRUPT", "git-lfs"),
        (b"\n<!DOCTYPE html><html>404</html>", "E_CORRUPT", "web page"),
        (b"PK\x03\x04 half of it", "E_CORRUPT", "zip archive"),
        (b"\x89HDF\r\n\x1a\n....", "E_UNSAFE_FORMAT", "HDF5"),
        (b"\x08\x07\x12\x07pytorch\x1a\x03", "E_UNSAFE_FORMAT", "ONNX"),
        (b"GGUF....", "E_UNSUPPORTED", "GGUF"),
        (b"just some text", "E_CORRUPT", "not a checkpoint"),
        (b' {"error": "not found"}', "E_CORRUPT", "JSON"),
        (bytes(64), "E_CORRUPT", "not a checkpoint"),
        (b"\x80\x04}.", "E_UNSAFE_FORMAT", "pickle"),
        (b"\x93NUMPY\1\0", "E_UNSUPPORTED", "numpy"),
        (b"\x1f\x8b\x08", "E_UNSUPPORTED", "gzip"),
        (b"\xfd7zXZ\0", "E_UNSUPPORTED", "xz"),
        (b"\x28\xb5\x2f\xfd", "E_UNSUPPORTED", "zstd"),
        (b"BZh91AY", "E_UNSUPPORTED", "bzip2"),
        (b"7z\xbc\xaf\x27\x1c", "E_UNSUPPORTED", "7z"),
        (bytes(257) + b"ustar", "E_UNSUPPORTED", "tar"),
        (b"\x1c\0\0\0TFL3", "E_UNSUPPORTED", "TFLite"),
        (struct.pack("<Q", 1 << 30) + b"{}", "E_LIMIT", "header"),
        (struct.pack("<Q", 4) + b"{}  ", "E_WEIGHTS", "no weights"),
    ],
)
def test_a_file_that_is_no_checkpoint_is_named_for_what_it_is(tmp_path, content, code, words):
    path = tmp_path / "model.pt"
    path.write_bytes(content)
    error = refusal(path)
    assert error.code == code
    assert words in error.fact
    assert error.source == str(path)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("graph.onnx", "E_UNSAFE_FORMAT"),
        ("model.h5", "E_UNSAFE_FORMAT"),
        ("saved_model.pb", "E_UNSAFE_FORMAT"),
        ("flax_model.msgpack", "E_CORRUPT"),  # a format that is opened: these bytes are not it
    ],
)
def test_a_suffix_names_what_the_bytes_do_not(tmp_path, name, code):
    (tmp_path / name).write_bytes(b"\x01\x02\x03\x04 whatever")
    assert refusal(tmp_path / name).code == code


def test_a_giant_file_of_nothing_is_refused_by_its_beginning(tmp_path, monkeypatch):
    """Eight terabytes that take no room: only the first kilobytes are looked at."""
    path = tmp_path / "model.safetensors"
    with path.open("wb") as stream:
        stream.truncate(8 << 40)
    read = []
    some = files.RegularFile._some

    def counting(self, offset, length):
        read.append(length)
        return some(self, offset, length)

    monkeypatch.setattr(files.RegularFile, "_some", counting)
    assert refusal(path).code == "E_CORRUPT"
    with path.open("r+b") as stream:
        stream.write(b"PK\x03\x04")
    error = refusal(path)
    assert error.code == "E_LIMIT"
    assert "8.0 TB" in error.fact
    assert "max_bytes=8T" in error.hint
    assert sum(read) <= 1 << 16


def test_a_git_lfs_pointer_comes_with_its_command(tmp_path):
    (tmp_path / "m.pt").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assert refusal(tmp_path / "m.pt").hint == "run git lfs pull"


def test_a_safetensors_file_without_its_header_is_damaged(tmp_path):
    (tmp_path / "m.safetensors").write_bytes(b"\xff" * 64)
    assert refusal(tmp_path / "m.safetensors").code == "E_CORRUPT"


def test_a_header_that_names_a_tensor_twice_is_damaged(tmp_path):
    entry = b'"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
    header = b"{" + entry + b"," + entry + b"}"
    (tmp_path / "m.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 4)
    assert refusal(tmp_path / "m.safetensors").code == "E_CORRUPT"


def test_a_path_that_does_not_exist_is_not_found(tmp_path):
    assert refusal(tmp_path / "none.pt").code == "E_NOT_FOUND"
    assert refusal(tmp_path / "none.pt" / "below").code == "E_NOT_FOUND"


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000])
def test_an_impossible_path_is_refused(tmp_path, name):
    assert refusal(tmp_path / name).code == "E_PATH"


def test_a_fifo_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "model.pt")
    assert refusal(tmp_path / "model.pt").code == "E_PATH"
    assert refusal(tmp_path).code == "E_PATH"


def test_a_socket_is_refused(tmp_path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "model.pt"))
        assert refusal(tmp_path / "model.pt").code == "E_PATH"
        assert refusal(tmp_path).code == "E_PATH"


def test_a_failing_disk_is_the_machines_fault(tmp_path, monkeypatch):
    torch.save({"w": torch.ones(2)}, tmp_path / "m.pt")

    def failing(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(files.os, "pread", failing)
    error = refusal(tmp_path / "m.pt", MachineError)
    assert error.code == "E_DISK"
    assert "Input/output" in error.fact


def test_a_device_is_refused(tmp_path):
    (tmp_path / "model.pt").symlink_to("/dev/zero")
    assert refusal(tmp_path / "model.pt").code == "E_PATH"


def test_an_unreadable_file_is_the_machines_fault(tmp_path, monkeypatch):
    torch.save({"w": torch.ones(2)}, tmp_path / "m.pt")

    def denied(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(files.os, "open", denied)
    error = refusal(tmp_path / "m.pt", MachineError)
    assert error.code == "E_DISK"
    assert error.exit_code == 5


def test_an_npz_bomb_is_refused_before_it_is_unpacked(tmp_path):
    with (
        zipfile.ZipFile(tmp_path / "m.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("w.npy", "w") as stream,
    ):
        for _ in range(300):
            stream.write(bytes(1 << 20))
    assert refusal(tmp_path / "m.npz").code == "E_LIMIT"


def test_an_absurd_shape_in_an_npz_is_damage(tmp_path):
    header = "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }"
    body = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header) + 1) + header.encode() + b"\n"
    with zipfile.ZipFile(tmp_path / "m.npz", "w") as archive:
        archive.writestr("w.npy", body + bytes(8))
    assert refusal(tmp_path / "m.npz").code == "E_CORRUPT"


def test_arrays_without_a_torch_type_are_refused_by_name(tmp_path):
    np.savez(tmp_path / "m.npz", when=np.array(["2020-01-01"], dtype="datetime64[D]"))
    error = refusal(tmp_path / "m.npz")
    assert error.code == "E_UNSUPPORTED"
    assert "when" in error.fact


def test_keras_and_other_archives_are_named(tmp_path):
    for name, member, code in (
        ("m.keras", "model.weights.h5", "E_UNSAFE_FORMAT"),
        ("m.zip", "readme.txt", "E_UNSUPPORTED"),
    ):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr(member, b"x")
        assert refusal(tmp_path / name).code == code


def test_hostile_names_arrive_clean_in_the_message(tmp_path):
    torch.save({"\x1b[31m\u202eevil": torch.ones(2, device="meta")}, tmp_path / "m.pt")
    line = str(refusal(tmp_path / "m.pt", MemauditError))
    assert "\x1b" not in line
    assert "\u202e" not in line


# -- What a folder offers lies in the folder; what the user names himself is opened.

COMMIT, XET = "1f" * 20, "ab" * 32


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "model").mkdir()
    return tmp_path / "model"


@pytest.fixture
def outside(tmp_path):
    save_file({"w": torch.ones(2)}, tmp_path / "secret.safetensors")
    return tmp_path / "secret.safetensors"


def containment_refusal(folder, name="model.safetensors"):
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
    assert containment_refusal(folder, name).code == "E_PATH"


@pytest.mark.parametrize(
    "name", ["a", "..a", "modèle v1 (2).pt", "ab:c", "model-00001-of-00002.bin"]
)
def test_odd_but_plain_names_are_fine(folder, name):
    (folder / name).write_bytes(b"x")
    assert within(folder, name) == folder / name
    with open_within(folder, name) as file:
        assert file.read(0, 1) == b"x"


def test_a_missing_file_is_not_found(folder):
    assert containment_refusal(folder).code == "E_NOT_FOUND"
    (folder / "model.safetensors").symlink_to("gone")
    assert containment_refusal(folder).code == "E_NOT_FOUND"


def test_a_link_to_itself_is_refused(folder):
    (folder / "model.safetensors").symlink_to("model.safetensors")
    assert containment_refusal(folder).code == "E_PATH"
    with pytest.raises(SourceError, match="E_PATH"):
        open_checkpoint(folder)


@pytest.mark.parametrize("absolute", [True, False])
def test_a_symbolic_link_outside_is_refused(folder, outside, absolute):
    (folder / "model.safetensors").symlink_to(outside if absolute else "../secret.safetensors")
    error = containment_refusal(folder)
    assert error.code == "E_PATH"
    assert "leads outside the folder" in error.fact
    with pytest.raises(SourceError, match="E_PATH"):
        open_checkpoint(folder)


def test_a_link_through_a_folder_outside_is_refused(folder, tmp_path, outside):
    (folder / "sub").symlink_to(tmp_path)
    (folder / "model.safetensors").symlink_to("sub/secret.safetensors")
    assert containment_refusal(folder).code == "E_PATH"


def test_a_folder_whose_name_begins_alike_is_outside(folder, tmp_path):
    (tmp_path / "model2").mkdir()
    (tmp_path / "model2" / "x").write_bytes(b"x")
    (folder / "model.safetensors").symlink_to("../model2/x")
    assert containment_refusal(folder).code == "E_PATH"


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
    error = containment_refusal(folder)
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
            assert containment_refusal(folder, name).code == "E_PATH"


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
    assert containment_refusal(place).code == "E_PATH"
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
    assert containment_refusal(place).code == "E_PATH"


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


# -- Small files beside the weights are read whole, from the folder itself, or not at all.


def test_a_file_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"[1]")
    assert read_beside(tmp_path, "a.json", most=3) == b"[1]"
    assert read_beside(tmp_path, "b.json", most=3) is None


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"[12]")
    for read in (read_beside, lambda f, n, most: require_beside(f, [n], most=most)):
        with pytest.raises(SourceError) as caught:
            read(tmp_path, "a.json", most=3)  # type: ignore[operator]
        assert caught.value.code == "E_LIMIT"


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_that_leads_elsewhere_is_refused(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, exists: bool
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "a.json"
    if exists:
        elsewhere.write_text("secret")
    (tmp_path / "a.json").symlink_to(elsewhere)
    with pytest.raises(SourceError) as caught:
        read_beside(tmp_path, "a.json", most=100)
    assert caught.value.code == ("E_PATH" if exists else "E_NOT_FOUND")
    with pytest.raises(SourceError):
        require_beside(tmp_path, ["a.json"], most=100)


def test_the_files_that_are_there_are_named(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("")
    assert require_beside(tmp_path, ["a", "b"], most=1) == ("b",)


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({"AutoModel": "own.Own"}, {"AutoModel": "own.Own"}),
        ({"AutoModel": "own.Own", "AutoTokenizer": ["own.Words", None]}, {"AutoModel": "own.Own"}),
        ("own.Own", {}),
        (None, {}),
    ],
)
def test_code_is_named_and_not_run(tmp_path: Path, stated: object, expected: object) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"auto_map": stated}))
    assert code_map(tmp_path) == expected


def test_without_a_config_no_code_is_named(tmp_path: Path) -> None:
    assert code_map(tmp_path) == {}


# -- Files that change under the audit: while they are read, and until its end.

WEIGHTS = {"w": torch.arange(64.0), "v": torch.ones(3)}
LONG_AGO = 10**18


def written(how):
    stream = io.BytesIO()
    if how == "safetensors":
        return save(WEIGHTS)
    if how == "npz":
        np.savez(stream, **{k: v.numpy() for k, v in WEIGHTS.items()})
    else:
        torch.save(WEIGHTS, stream)
    return stream.getvalue()


@pytest.fixture(params=["safetensors", "torch", "npz"])
def path(request, tmp_path):
    """A file that nobody touched for a long time: the clock of a disk ticks slowly."""
    path = tmp_path / "model.bin"
    path.write_bytes(written(request.param))
    os.utime(path, ns=(LONG_AGO, LONG_AGO))
    return path


def truncate(path):
    os.truncate(path, path.stat().st_size // 2)


def grow(path):
    with path.open("ab") as stream:
        stream.write(b"x")


def flip(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    with path.open("r+b") as stream:
        stream.write(data)


def rewrite_in_secret(path):
    flip(path)
    os.utime(path, ns=(LONG_AGO, LONG_AGO))


@pytest.mark.parametrize("change", [truncate, grow, flip, rewrite_in_secret])
@pytest.mark.parametrize("when", ["open.read", "reading"])
def test_a_change_while_the_file_is_read_is_noticed(path, monkeypatch, change, when):
    if when == "open.read":
        monkeypatch.setattr(checkpoint, "step", lambda name: name == when and change(path))
    else:
        finish = checkpoint.OnePass.finish
        monkeypatch.setattr(
            checkpoint.OnePass, "finish", lambda self: (change(path), finish(self))[1]
        )
    with pytest.raises(SourceError) as caught:
        open_checkpoint(path)
    assert caught.value.code == "E_CHANGED"
    assert "while it was read" in caught.value.fact
    assert caught.value.hint


def test_an_untouched_file_has_no_changes(path):
    checkpoint = open_checkpoint(path)
    assert checkpoint.changes() == []


@pytest.mark.parametrize("change", [truncate, grow, flip, rewrite_in_secret])
def test_a_change_during_the_audit_is_reported(path, change):
    checkpoint = open_checkpoint(path)
    change(path)
    (error,) = checkpoint.changes()
    assert isinstance(error, SourceError)
    assert (error.code, error.stage, error.source) == ("E_CHANGED", "after", str(path))
    assert "changed during the audit" in error.fact
    assert checkpoint.sha256 in error.fact
    assert error.hint


def test_a_file_that_was_removed_is_reported(path):
    checkpoint = open_checkpoint(path)
    path.unlink()
    (error,) = checkpoint.changes()
    assert error.code == "E_CHANGED"
    assert "removed" in error.fact


def test_a_fifo_in_its_place_is_reported_without_waiting(path):
    checkpoint = open_checkpoint(path)
    path.unlink()
    os.mkfifo(path)
    assert [error.code for error in checkpoint.changes()] == ["E_CHANGED"]


def test_the_same_bytes_in_a_new_file_are_no_change(path):
    checkpoint = open_checkpoint(path)
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data)
    assert checkpoint.changes() == []


def test_a_file_that_cannot_be_read_again_is_the_machines_fault(path, monkeypatch):
    checkpoint = open_checkpoint(path)

    def denied(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("memaudit.loading.files.os.open", denied)
    (error,) = checkpoint.changes()
    assert isinstance(error, MachineError)
    assert error.source == str(path)


def test_a_very_large_file_is_read_again_only_when_it_was_touched(path, monkeypatch):
    monkeypatch.setattr(files, "LARGEST_READ_AGAIN", 0)
    checkpoint = open_checkpoint(path)
    read = []
    digest = files.digest
    monkeypatch.setattr(files, "digest", lambda file: read.append(file.path) or digest(file))
    assert checkpoint.changes() == []
    assert read == []
    os.utime(path)
    assert checkpoint.changes() == []
    assert read == [path]
    flip(path)
    assert [error.code for error in checkpoint.changes()] == ["E_CHANGED"]


def test_only_the_shard_that_changed_is_named(tmp_path):
    from tests.loading.test_folders import FIRST, SECOND, split

    checkpoint = open_checkpoint(split(tmp_path))
    flip(tmp_path / SECOND)
    (error,) = checkpoint.changes()
    assert error.source == str(tmp_path / SECOND)
    assert FIRST not in str(error)


# -- How many bytes may be opened: what the user says, or the memory that is there.

GIGABYTE = 1 << 30


def machine(root, files):
    """A system of our own: path → text."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


MEMINFO = "MemTotal:       32000000 kB\nMemAvailable:   20971520 kB\nSwapFree: 0 kB\n"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 20),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 20),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": f"{4 * GIGABYTE}\n"}, 4),
        ({"sys/fs/cgroup/memory.max": f"{30 * GIGABYTE}\n"}, 20),
        (
            {"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": f"{3 * GIGABYTE}\n"},
            3,
        ),
        (
            {
                "proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/job/7\n0::/\n",
                "sys/fs/cgroup/memory/job/7/memory.limit_in_bytes": f"{2 * GIGABYTE}\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            2,
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/seen/from/outside\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{GIGABYTE}\n",
            },
            1,
        ),
        ({"sys/fs/cgroup/memory.max": "nonsense"}, 20),
    ],
)
def test_the_smallest_limit_counts(tmp_path, files, expected):
    root = machine(tmp_path, {"proc/meminfo": MEMINFO, **files})
    assert available_memory(system=root) == expected * GIGABYTE


def test_a_system_that_says_nothing_is_asked_for_its_pages(tmp_path):
    assert available_memory(system=tmp_path) > 0
    assert available_memory() > 0


def test_what_fits_passes_and_what_does_not_is_said(monkeypatch):
    monkeypatch.setattr(access, "available_memory", lambda: 4 * GIGABYTE)
    require_room(4 * GIGABYTE, Access())
    require_room(2 * GIGABYTE, Access(), copies=2)
    with pytest.raises(SourceError) as caught:
        require_room(5 * GIGABYTE + 1, Access())
    assert caught.value.code == "E_LIMIT"
    assert "5.0 GB" in caught.value.fact
    assert "4.0 GB" in caught.value.fact
    assert caught.value.hint.endswith("--set max_bytes=6G")
    with pytest.raises(SourceError):
        require_room(2 * GIGABYTE + 1, Access(), copies=2)


def test_what_reading_takes_beside_the_weights_is_kept_free(monkeypatch):
    monkeypatch.setattr(access, "available_memory", lambda: 4 * GIGABYTE)
    require_room(3 * GIGABYTE, Access(), beside=GIGABYTE)
    with pytest.raises(SourceError, match=r"memory for 3.0 GB"):
        require_room(3 * GIGABYTE + 1, Access(), beside=GIGABYTE)
    with pytest.raises(SourceError, match="memory for 0 bytes"):
        require_room(1, Access(), beside=5 * GIGABYTE)


def test_the_user_may_say_more_or_less(monkeypatch):
    monkeypatch.setattr(access, "available_memory", lambda: 4 * GIGABYTE)
    require_room(5 * GIGABYTE, Access(limits=Limits(max_bytes=5 * GIGABYTE)), copies=2)
    with pytest.raises(SourceError, match="limit is 1000 bytes"):
        require_room(1001, Access(limits=Limits(max_bytes=1000)))


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1536, "1.5 KB"),
        (1 << 40, "1.0 TB"),
        (1 << 51, "2048.0 TB"),
    ],
)
def test_sizes_are_said_as_people_say_them(size, expected):
    assert human_size(size) == expected
