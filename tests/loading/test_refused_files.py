"""Bad days: each is one sentence with a code and a next step."""

import os
import socket
import struct
import zipfile

import numpy as np
import pytest
import torch

from memaudit.errors import MachineError, MemauditError, SourceError
from memaudit.loading import files
from memaudit.loading.checkpoint import open_checkpoint


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
