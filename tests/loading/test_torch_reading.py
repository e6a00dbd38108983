"""A torch file read without torch.load holds what torch.load finds in it."""

import argparse
import collections
import enum
import functools
import io
import json
import pathlib
import pickle
import struct
import types

import numpy as np
import pytest
import torch

from memaudit.loading.access import SAFE, Access
from memaudit.loading.checkpoint import find_weights, open_checkpoint
from memaudit.loading.torch_file import read_torch
from tests.loading import pickle_writing as write

INERT = Access(allow_pickle=True)
COMMON = ("float64", "float32", "float16", "bfloat16", "complex64", "complex128", "bool")
WHOLE = ("int8", "int16", "int32", "int64", "uint8")
#: These came after the legacy format.
RECENT = ("uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2")


class Colour(enum.Enum):
    RED = 1


class Mode(enum.Flag):
    FAST = 1


class Settings(dict):
    """As the dictionaries with attributes that trainers have."""


class Odd:
    pass


class Ignored:
    """Stands for every class that is not installed here."""

    def __init__(self, *_, **__):
        pass

    def __setstate__(self, state):
        pass


class Blind(types.ModuleType):
    """A pickle module for torch.load that knows torch, collections and nothing else."""

    class Unpickler(pickle.Unpickler):
        def find_class(self, module, name):
            known = module.partition(".")[0] in ("torch", "collections", "__builtin__")
            return super().find_class(module, name) if known else Ignored


def saved(content, *, zipped=True, protocol=2):
    buffer = io.BytesIO()
    torch.save(content, buffer, _use_new_zipfile_serialization=zipped, pickle_protocol=protocol)
    return buffer.getvalue()


def same(a, b):
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b and type(a) is type(b)


def state(*, recent):
    whole = torch.arange(24.0).reshape(2, 3, 4)
    named = torch.nn.Parameter(torch.ones(3))
    named.remark = "kept nowhere"
    return {
        **{d: torch.arange(6).to(getattr(torch, d)) for d in COMMON + WHOLE},
        **{d: torch.arange(6).to(getattr(torch, d)) for d in (RECENT if recent else ())},
        "whole": whole,
        "row": whole[:, 1],
        "turned": whole.transpose(0, 2),
        "expanded": torch.ones(1).expand(4, 5),
        "empty": torch.empty(0, 3),
        "end": torch.ones(5)[5:],
        "scalar": torch.tensor(3.0),
        "parameter": torch.nn.Parameter(torch.ones(2, 2)),
        "named": named,
        "buffer": torch.nn.Buffer(torch.ones(2)),
        "conjugate": torch.tensor([1 + 2j, 3 - 1j]).conj(),
        "negative": torch.tensor([1 + 2j, 3 - 1j]).conj().imag,
    }


@pytest.mark.parametrize("access", [SAFE, INERT], ids=["safe", "inert"])
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_tensors_and_plain_containers_are_what_torch_finds(zipped, protocol, access):
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 2)).sum().backward()
    optimizer.step()
    content = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "many": state(recent=zipped),
        "plain": collections.OrderedDict(a=1, b=[1.5, None, True, "ä☃", 2**40, -5]),
        "counted": collections.Counter("aab"),
        7: 8,
    }
    data = saved(content, zipped=zipped, protocol=protocol)
    found, notes = read_torch(data, access=access)
    assert same(torch.load(io.BytesIO(data), weights_only=False), found)
    assert notes == ()


@pytest.mark.parametrize("protocol", [2, 5])
@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_objects_with_a_plain_meaning_become_plain(zipped, protocol):
    odd = Odd()
    odd.weight = torch.ones(2)
    content = {
        "namespace": argparse.Namespace(a=1, path=pathlib.PurePosixPath("/a/b/c")),
        "simple": types.SimpleNamespace(z=3),
        "windows": pathlib.PureWindowsPath("c:\\a\\b"),
        "settings": Settings(a=1, b=Settings(c=2)),
        "default": collections.defaultdict(list, a=[1]),
        "queue": collections.deque([1, 2]),
        "numbers": [np.float32(1.5), np.int64(3), np.bool_(True)],
        "rows": np.arange(6.0).reshape(2, 3),
        "columns": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "big": np.arange(3, dtype=">f4"),
        "size": torch.Size([1, 2]),
        "device": torch.device("cuda", 1),
        "dtype": torch.float32,
        "member": Colour.RED,
        "flag": Mode.FAST,
        "partial": functools.partial(torch.optim.Adam, lr=1),
        "odd": odd,
        "class": Odd,
        "objects": np.array([None], dtype=object),
        "bytes": b"abc",
        "complex": 1j,
    }
    data = saved(content, zipped=zipped, protocol=protocol)
    found, (note, lost) = read_torch(data, access=INERT)
    plain = {
        "namespace": {"a": 1, "path": "/a/b/c"},
        "simple": {"z": 3},
        "windows": "c:\\a\\b",
        "settings": {"a": 1, "b": {"c": 2}},
        "default": {"a": [1]},
        "queue": [1, 2],
        "numbers": [1.5, 3, True],
        "rows": torch.arange(6.0, dtype=torch.float64).reshape(2, 3),
        "columns": torch.arange(6).reshape(2, 3),
        "big": torch.arange(3.0),
        "size": [1, 2],
        "device": "cuda:1",
        "dtype": "torch.float32",
    }
    assert same(plain, found)
    named = lost.removeprefix("left out among the tensors: ").split(", ")
    assert {name.partition(" ")[0] for name in named} == {*content} - {*plain}
    kinds = note.removeprefix("allow-pickle: ").partition(" made inert: ")[2].split(", ")
    assert note.startswith(f"allow-pickle: {len(kinds)} kinds of objects were made inert: ")
    assert {"argparse.Namespace (1)", f"{__name__}.Settings (2)", "functools.partial (1)"} < {
        *kinds
    }


def test_big_endian_files_are_turned_round():
    raw = struct.pack(">ff", 1.5, -2.0)
    value = write.entries(
        w=write.tensor(write.storage("0", 2), (2,)),
        c=write.tensor(write.storage("1", 1, kind="torch.ComplexFloatStorage"), (1,)),
    )
    data = write.zip_file(write.pickled(value), {"0": raw, "1": raw}, order="big")
    found, _ = read_torch(data)
    assert found["w"].tolist() == [1.5, -2.0]
    assert found["c"].tolist() == [1.5 - 2.0j]


def test_truth_values_are_true_or_false():
    stored = write.storage("0", 2, kind="torch.BoolStorage")
    data = write.zip_file(
        write.pickled(write.entries(w=write.tensor(stored, (2,)))), {"0": b"\0\7"}
    )
    found, _ = read_torch(data)
    assert found["w"].view(torch.uint8).tolist() == [0, 1]


def test_the_settings_of_an_omegaconf_checkpoint_become_metadata(tmp_path):
    def node(value):
        return write.named("omegaconf.nodes.AnyNode") + b")\x81" + write.entries(_val=value) + b"b"

    def config(name, content):
        made = write.named(f"omegaconf.{name}") + b")\x81"
        state = write.entries(_content=content, _parent=b"N", _metadata=write.named("typing.Any"))
        return made + state + b"b"

    sizes = config("listconfig.ListConfig", write.listed(node(b"K\x08"), node(b"K\x09")))
    layer = config("dictconfig.DictConfig", write.entries(mode=node(write.text("nplr"))))
    settings = write.entries(layer=layer, sizes=sizes, rate=node(b"G" + struct.pack(">d", 0.5)))
    content = write.entries(
        state_dict=write.entries(w=write.tensor(write.storage("0", 1), (1,))),
        hyper_parameters=config("dictconfig.DictConfig", settings),
    )
    path = tmp_path / "last.ckpt"
    path.write_bytes(write.zip_file(write.pickled(content), {"0": write.ONE}))
    found = open_checkpoint(path, INERT)
    said = json.loads(found.metadata["hyper_parameters"])
    assert said == {"layer": {"mode": "nplr"}, "sizes": [8, 9], "rate": 0.5}
    (note,) = [n for n in found.notes if n.startswith("allow-pickle: ")]  # they are the config, too
    assert "omegaconf.dictconfig.DictConfig (2)" in note


def test_what_is_lost_among_the_tensors_is_named():
    content = {"state_dict": {"w": torch.ones(1), "extra": b"raw", "odd": Odd()}, "epoch": Odd()}
    _, notes = read_torch(saved(content), access=INERT)
    assert notes[1] == (
        "left out among the tensors: state_dict.extra (_codecs.encode), "
        f"state_dict.odd ({__name__}.Odd)"
    )


def test_arrays_among_the_settings_are_not_weights():
    content = {"net_g": {"w": torch.ones(1)}, "hparams": {"mean": np.ones(2), "n": 3}}
    found = find_weights(read_torch(saved(content), access=INERT)[0])
    assert list(found.tensors) == ["w"]
    assert json.loads(found.metadata["hparams"]) == {"n": 3}


@pytest.mark.shared
def test_every_reference_checkpoint_is_what_torch_finds(shared):
    found = [p for p in shared.rglob("*") if p.suffix in (".pt", ".pth", ".bin", ".ckpt")]
    assert found
    for path in found:
        weights = open_checkpoint(path, INERT)
        content = torch.load(path, map_location="cpu", weights_only=False, pickle_module=Blind)
        state = content.get(weights.container, content)
        assert same(dict(state), weights.tensors), path


@pytest.mark.shared
def test_the_settings_of_the_omegaconf_reference_are_those_it_was_made_with(shared):
    folder = shared / "fixtures/s4_v4_lightning/nplr_omegaconf"
    found = open_checkpoint(folder / "last.ckpt", INERT)
    stated = json.loads((folder / "meta.json").read_text())["config"]
    assert json.loads(found.metadata["hyper_parameters"]) == stated
