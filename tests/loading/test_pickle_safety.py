"""A pickle that wants more than tensors is named and refused; nothing of it is run."""

import argparse
import io
import os
import pickle
import zipfile

import pytest
import torch

from memaudit.errors import SourceError
from memaudit.loading.checkpoint import open_checkpoint


class Evil:
    """Unpickling it would write a canary file."""

    def __init__(self, canary):
        self.canary = canary

    def __reduce__(self):
        return os.system, (f"touch {self.canary}",)


def refusal(path):
    with pytest.raises(SourceError) as caught:
        open_checkpoint(path)
    assert "weights_only" not in str(caught.value)
    assert "add_safe_globals" not in str(caught.value)
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize("forced", [True, False])
@pytest.mark.parametrize("how", ["zip", "zip4", "legacy", "raw2", "raw4"])
@pytest.mark.parametrize("suffix", [".pt", ".bin", ".safetensors"])
def test_a_hostile_pickle_is_never_run(tmp_path, monkeypatch, how, forced, suffix):
    canary, path = tmp_path / "canary", tmp_path / f"model{suffix}"
    content = {"w": torch.ones(2), "x": Evil(canary)}
    if how.startswith("raw"):
        path.write_bytes(pickle.dumps(Evil(canary), protocol=int(how[-1])))
    else:
        torch.save(
            content,
            path.with_suffix(".tmp"),
            pickle_protocol=4 if how == "zip4" else 2,
            _use_new_zipfile_serialization=how.startswith("zip"),
        )
        path.with_suffix(".tmp").rename(path)
    if forced:
        monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    error = refusal(path)
    assert error.code == "E_UNSAFE_FORMAT"
    assert not canary.exists()
    if not how.startswith("raw"):
        assert "system" in error.fact


@pytest.mark.parametrize("zipped", [True, False])
def test_foreign_objects_beside_the_weights_are_named(tmp_path, zipped):
    path = tmp_path / "last.ckpt"
    content = {"state_dict": {"w": torch.ones(2)}, "hyper_parameters": argparse.Namespace(n=1)}
    torch.save(content, path, _use_new_zipfile_serialization=zipped)
    error = refusal(path)
    assert error.code == "E_UNSAFE_FORMAT"
    assert error.fact == "the file needs Python objects besides tensors: argparse.Namespace"
    assert "safetensors" in error.hint


@pytest.mark.parametrize("zipped", [True, False])
def test_a_whole_pickled_module_is_called_so(tmp_path, zipped):
    torch.save(torch.nn.GRU(2, 3), tmp_path / "m.pt", _use_new_zipfile_serialization=zipped)
    error = refusal(tmp_path / "m.pt")
    assert error.code == "E_UNSAFE_FORMAT"
    assert "whole pickled module" in error.fact
    assert "torch.nn.modules.rnn.GRU" in error.fact


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_torchscript_is_called_so(tmp_path):
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), tmp_path / "m.pt")
    error = refusal(tmp_path / "m.pt")
    assert error.code == "E_UNSAFE_FORMAT"
    assert "TorchScript" in error.fact


def test_npz_with_pickled_objects_is_refused(tmp_path):
    import numpy as np

    np.savez(tmp_path / "m.npz", w=np.array([Evil(tmp_path / "canary")], dtype=object))
    error = refusal(tmp_path / "m.npz")
    assert error.code == "E_UNSAFE_FORMAT"
    assert not (tmp_path / "canary").exists()


def test_a_compressed_torch_archive_is_refused(tmp_path):
    buffer = io.BytesIO()
    torch.save({"w": torch.zeros(1000)}, buffer)
    with zipfile.ZipFile(buffer) as old, zipfile.ZipFile(tmp_path / "m.pt", "w") as new:
        for member in old.infolist():
            new.writestr(member.filename, old.read(member), compress_type=zipfile.ZIP_DEFLATED)
    assert refusal(tmp_path / "m.pt").code == "E_UNSUPPORTED"


def test_corrupt_safetensors_beside_a_pickle_are_not_replaced_by_it(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{broken")
    torch.save({"w": torch.ones(2)}, tmp_path / "pytorch_model.bin")
    assert refusal(tmp_path).code == "E_CORRUPT"
