"""Files that change under the audit: while they are read, and until its end."""

import io
import os

import numpy as np
import pytest
import torch
from safetensors.torch import save

from memaudit.errors import MachineError, SourceError
from memaudit.loading import checkpoint, files
from memaudit.loading.checkpoint import open_checkpoint

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
    from tests.loading.test_shards import FIRST, SECOND, split

    checkpoint = open_checkpoint(split(tmp_path))
    flip(tmp_path / SECOND)
    (error,) = checkpoint.changes()
    assert error.source == str(tmp_path / SECOND)
    assert FIRST not in str(error)
