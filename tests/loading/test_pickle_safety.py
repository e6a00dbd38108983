"""A pickle that wants more than tensors is named and refused; nothing of it is run."""

import argparse
import collections
import io
import os
import pathlib
import pickle
import pickletools
import random
import zipfile

import pytest
import torch

from memaudit.errors import SourceError
from memaudit.loading.access import Limits
from memaudit.loading.checkpoint import find_weights, open_checkpoint
from memaudit.loading.pickle_child import describe
from memaudit.loading.torch_file import TorchParts, rebuild, torch_parts
from tests.hostile.case import Scene
from tests.hostile.cases.pickles import GADGETS, written


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
        assert error.fact == "the file would run os.system: it carries code"


@pytest.mark.parametrize("zipped", [True, False])
def test_foreign_objects_beside_the_weights_are_named(tmp_path, zipped):
    path = tmp_path / "last.ckpt"
    content = {"state_dict": {"w": torch.ones(2)}, "hyper_parameters": argparse.Namespace(n=1)}
    torch.save(content, path, _use_new_zipfile_serialization=zipped)
    error = refusal(path)
    assert error.code == "E_UNSAFE_FORMAT"
    assert error.fact == "the file needs Python objects besides tensors: argparse.Namespace"
    assert "--allow-pickle" in error.hint
    assert "allow_pickle=True" in error.hint
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


#: These reach for the network, or for what is not there.
_ELSEWHERE = (
    "__builtin__.eval",
    "getattr on what was made",
    "runpy",
    "webbrowser",
    "torch.hub.load",
)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("name", [name for name, _, _ in GADGETS if name not in _ELSEWHERE])
def test_the_gadgets_of_the_table_are_sharp(tmp_path, name):
    scene = Scene(tmp_path)
    scene.inputs.mkdir()
    value = next(value for known, _, value in GADGETS if known == name)
    _, path = written(value, (), protocol=4)(scene)
    torch.load(path, weights_only=False)
    assert scene.canary.exists()


def test_a_spoilt_pickle_gives_an_error_and_nothing_else():
    rng = random.Random(0)
    codes = [opcode.code.encode("latin-1") for opcode in pickletools.opcodes]
    files = []
    for zipped, protocol in ((True, 2), (True, 5), (False, 4)):
        buffer = io.BytesIO()
        content = {
            "state_dict": {"w": torch.ones(2, 3), "p": torch.nn.Parameter(torch.ones(2))},
            "settings": argparse.Namespace(path=pathlib.PurePath("/a"), sizes=[1, 2.5, None]),
        }
        torch.save(content, buffer, _use_new_zipfile_serialization=zipped, pickle_protocol=protocol)
        files.append(torch_parts(buffer.getvalue(), Limits()))

    def spoilt(pickle):
        raw = bytearray(pickle)
        for _ in range(rng.choice([1, 1, 2, 8])):
            place = rng.randrange(len(raw))
            match rng.randrange(4):
                case 0:
                    raw[place] = rng.randrange(256)
                case 1:
                    raw[place:place] = rng.choice(codes)
                case 2:
                    raw[place : place + rng.randrange(20)] = b""
                case _:
                    other = rng.randrange(len(raw))
                    raw[place:place] = raw[other : other + rng.randrange(60)]
        return bytes(raw)

    seen = collections.Counter()
    for _ in range(3000):
        parts = rng.choice(files)
        pickles = [spoilt(p) if len(p) > 50 else p for p in parts.pickles]
        lie = TorchParts(parts.data, tuple(pickles), parts.members, False, parts.behind)
        try:
            told = describe(lie.pickles, inert=rng.random() < 0.7, max_tensors=500)
            find_weights(rebuild(told, lie, max_tensors=500))
            seen["opened"] += 1
        except SourceError as error:
            seen[error.code] += 1
    assert set(seen) <= {
        *("opened", "E_CORRUPT", "E_UNSAFE_FORMAT", "E_UNSUPPORTED", "E_LIMIT", "E_WEIGHTS")
    }
    assert min(seen["opened"], seen["E_CORRUPT"], seen["E_UNSAFE_FORMAT"]) > 20
