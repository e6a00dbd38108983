"""Torch files against torch itself: whole, with shared storages, and damaged."""

from __future__ import annotations

import argparse
import collections
import enum
import functools
import inspect
import io
import json
import pathlib
import pickle
import struct
import types

import numpy as np
import pytest
import torch

from memaudit.errors import SourceError
from memaudit.loading.access import SAFE, Access, Limits
from memaudit.loading.checkpoint import find_weights, open_checkpoint
from memaudit.loading.pickle_child import refuse_objects
from memaudit.loading.pickle_machine import Budget, Machine
from memaudit.loading.pickle_objects import TENSOR_FIELDS, Made, Named, Pairs
from memaudit.loading.torch_file import read_torch
from tests.loading import pickle_writing as write

# -- A torch file read without torch.load holds what torch.load finds in it.

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


# -- Where a pickle changes what it has used, or loses a tensor, that is refused or said.

FIRST = struct.pack("<4f", 0, 1, 2, 3)
SECOND = struct.pack("<4f", 100, 101, 102, 103)
HOOKS = write.call("collections.OrderedDict")
T1 = write.tensor(write.storage("0", 4), (4,))
T2 = write.tensor(write.storage("1", 4), (4,))
OTHER = write.many(write.storage("1", 4), b"K\x00", write.numbers(4), write.numbers(1))
GIANT = write.giant(b"\x11" * 10)


def rebuilt(*last, size=None):
    stored = write.storage("0", 4)
    arguments = (
        stored,
        b"K\x00",
        size or write.numbers(4),
        write.numbers(1),
        b"\x89",
        HOOKS,
        *last,
    )
    return write.call("torch._utils._rebuild_tensor_v2", *arguments)


def parameter(state):
    return write.call("torch._utils._rebuild_parameter_with_state", T1, b"\x88", HOOKS, state)


def typed(state):
    function = write.named("torch._utils._rebuild_tensor_v2")
    arguments = write.many(
        *(write.storage("0", 4), b"K\x00", write.numbers(4), write.numbers(1), b"\x89", HOOKS)
    )
    tensor = write.named("torch.Tensor")
    return write.call("torch._tensor._rebuild_from_type_v2", function, tensor, arguments, state)


def converted(dtype):
    name = "torch._utils._rebuild_device_tensor_from_cpu_tensor"
    return write.call(name, T1, write.named(dtype), write.text("cpu"), b"\x89")


def zipped(value):
    used = {key: raw for key, raw in (("0", FIRST), ("1", SECOND)) if write.text(key) in value}
    return write.zip_file(write.pickled(value), used)


def in_torch(data):
    return torch.load(io.BytesIO(data), weights_only=False)


def refusal(data, access=SAFE):
    with pytest.raises(SourceError) as caught:
        find_weights(read_torch(data, access=access)[0])
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize(
    "value",
    [
        T1 + OTHER + b"b",
        T1 + OTHER + b"bNb",
        T1 + b"K\x00" + write.number(7) + b"s",
        write.call("torch._utils._rebuild_parameter", T1, b"\x88", HOOKS)
        + write.many(T2, b"N", b"N", b"\x88", b"}")
        + b"b",
        parameter(write.entries(data=T2)),
        parameter(write.many(b"N", write.entries(data=T2))),
        parameter(write.entries(real=b"K\x07")),
        parameter(write.call("collections.OrderedDict", write.listed())),
        typed(write.entries(data=T2)),
        typed(write.entries(scale=T2)),
        converted("torch.float16"),
    ],
)
@pytest.mark.parametrize("access", [SAFE, INERT], ids=["safe", "inert"])
def test_a_tensor_that_becomes_another_one_is_refused(value, access):
    error = refusal(zipped(write.entries(w=value)), access)
    assert error.code in ("E_UNSUPPORTED", "E_CORRUPT")


@pytest.mark.parametrize(
    "state", [write.entries(data=T2), write.many(b"N", write.entries(data=T2))]
)
def test_torch_itself_takes_the_other_tensor(state):
    assert in_torch(zipped(write.entries(w=parameter(state))))["w"].tolist()[0] == 100


@pytest.mark.parametrize(
    "value",
    [
        parameter(write.entries(remark=b"K\x03", shape_of=write.text("hello"))),
        parameter(write.many(write.entries(remark=b"K\x03"), b"N")),
        typed(write.entries(tag=write.text("hello"))),
        typed(b"N"),
        converted("torch.float32"),
    ],
)
def test_remarks_at_a_tensor_change_nothing(value):
    data = zipped(write.entries(w=value))
    assert read_torch(data)[0]["w"].tolist() == in_torch(data)["w"].tolist() == [0, 1, 2, 3]


def test_every_field_of_a_tensor_is_known_to_be_one():
    kind = torch.nn.Parameter
    fields = {n for n in dir(kind) if hasattr(type(inspect.getattr_static(kind, n)), "__set__")}
    assert {n for n in fields if not n.startswith("__")} <= TENSOR_FIELDS


PAIR = write.listed(write.text("w"), T1)
SAID = write.text("conj") + b"\x88s"


def used(first, then, *, change):
    """A dictionary with a container, a call that uses it, and a change of the container."""
    return (
        b"}("
        + write.text("opt")
        + first
        + b"q\x00"
        + write.text("model")
        + then
        + (write.text("optimizer") + b"h\x00" + change + b"u")
    )


@pytest.mark.parametrize(
    "value",
    [
        used(
            write.entries(w=T1),
            write.call("collections.Counter", b"h\x00"),
            change=write.text("w") + T2 + b"s",
        ),
        used(
            write.listed(PAIR),
            write.call("collections.OrderedDict", b"h\x00"),
            change=write.listed(write.text("w"), T2) + b"a",
        ),
        used(
            b"]" + write.text("w") + b"a",
            write.call("collections.OrderedDict", write.listed(b"h\x00" + T1 + b"a")),
            change=T2 + b"a",
        ),
        used(b"]K\x02a", write.entries(w=rebuilt(size=b"h\x00")), change=b"K\x02a"),
        used(b"}", write.entries(w=rebuilt(b"h\x00")), change=SAID),
        used(b"}", write.entries(w=typed(b"N")), change=SAID).replace(
            HOOKS + b"t", HOOKS + b"h\x00t", 1
        ),
    ],
    ids=["counter", "pairs", "a pair", "size", "properties", "properties of a subclass"],
)
def test_what_a_call_has_used_does_not_change_afterwards(value):
    data = zipped(value)
    assert "w" in in_torch(data)["model"]
    assert refusal(data).code == "E_CORRUPT"


@pytest.mark.parametrize(
    "value",
    [
        write.call("collections.OrderedDict", write.listed(PAIR)),
        write.call("collections.Counter", write.entries(w=T1)),
        write.call("collections.defaultdict", b"N", write.entries(w=T1)),
        write.call("collections.defaultdict", b"N") + write.text("w") + T1 + b"s",
        write.call("builtins.dict", write.entries(w=T2)) + write.text("w") + T1 + b"s",
    ],
)
def test_a_dictionary_that_is_made_of_something_is_what_torch_finds(value):
    data = zipped(value)
    found = find_weights(read_torch(data)[0]).tensors
    assert {k: v.tolist() for k, v in found.items()} == {
        k: v.tolist() for k, v in in_torch(data).items()
    }


@pytest.mark.parametrize(
    "value",
    [
        write.call("collections.Counter", write.listed(write.many(write.text("w"), T1))),
        write.call("collections.OrderedDict", write.call("builtins.dict", write.entries(w=T1))),
        write.named("collections.OrderedDict") + write.many(write.listed(PAIR)) + b"\x81",
    ],
)
def test_a_dictionary_that_is_made_in_an_unknown_way_is_refused(value):
    assert refusal(zipped(value)).code in ("E_UNSUPPORTED", "E_CORRUPT")


@pytest.mark.parametrize("key", [(1,), 3.5, b"by", 2**70, "long" * 10_000])
@pytest.mark.parametrize("access", [SAFE, INERT], ids=["safe", "inert"])
@pytest.mark.parametrize("inside", [True, False])
def test_tensors_under_keys_that_name_nothing_are_refused(key, access, inside):
    buffer = io.BytesIO()
    content = {"w": torch.ones(2), key: torch.ones(2)}
    torch.save({"model": content} if inside else content, buffer)
    error = refusal(buffer.getvalue(), access)
    assert error.code == "E_UNSUPPORTED"
    assert "tensors are named by" in error.fact


def test_keys_that_name_nothing_are_welcome_among_the_settings():
    buffer = io.BytesIO()
    settings = {(1, 2): 3, 1.5: [1], b"a": {"x": 1}, "n": 1}
    torch.save({"model": {"w": torch.ones(2)}, "config": settings}, buffer)
    found = find_weights(read_torch(buffer.getvalue())[0])
    assert list(found.tensors) == ["w"]
    assert found.metadata["config"] == '{"n": 1}'


def test_a_name_that_is_computed_is_refused():
    name = write.call("builtins.str", write.text("w"))
    assert refusal(zipped(b"}(" + write.text("w") + T1 + name + b"K\x03u")).code == "E_CORRUPT"


def test_the_last_value_of_a_key_counts_even_if_it_cannot_be_said():
    value = b"}(" + write.text("w") + T1 + write.text("v") + T2 + write.text("w") + GIANT + b"u"
    found, notes = read_torch(zipped(value))
    assert list(found) == ["v"]
    assert notes == ("left out among the tensors: w (int)",)


def test_what_is_lost_among_arrays_is_named():
    buffer = io.BytesIO()
    torch.save({"w": np.ones(2, "f4"), "b": np.array([None])}, buffer)
    _, notes = read_torch(buffer.getvalue(), access=INERT)
    assert notes[1].startswith("left out among the tensors: b (")


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_empty_arrays_are_read(protocol):
    buffer = io.BytesIO()
    torch.save({"w": np.ones((0, 3), "f4")}, buffer, pickle_protocol=protocol)
    found, _ = read_torch(buffer.getvalue(), access=INERT)
    assert found["w"].shape == (0, 3)


@pytest.mark.parametrize("change", [b"K\x00K\x07s", write.numbers(1) + b"b"])
def test_an_array_that_changes_after_it_was_made_is_refused(change):
    dtype = write.call("numpy.dtype", write.text("f4"), b"\x89", b"\x88")
    built = dtype + write.many(b"K\x03", write.text("<"), b"N", b"N", b"N") + b"b"
    raw = b"C\x04" + write.ONE
    arguments = (raw, built, write.numbers(1), write.text("C"))
    value = write.call("numpy._core.numeric._frombuffer", *arguments)
    assert find_weights(read_torch(zipped(write.entries(w=value)), access=INERT)[0]).tensors
    assert refusal(zipped(write.entries(w=value + change)), INERT).code == "E_CORRUPT"


class Counted(list):
    """Counts how often it is walked through."""

    walks = 0

    def __iter__(self):
        self.walks += 1
        return super().__iter__()


def test_a_state_that_many_objects_share_is_read_once():
    pairs = Counted([(1, None)])
    state = Pairs(pairs)
    maker = Named("collections.OrderedDict")
    root = Pairs([(str(i), Made(maker, (), state)) for i in range(100)])
    refuse_objects(Machine(Budget(1)), root, inert=False)
    assert pairs.walks == 1


# -- Tensors that do not fit their storages, and files beyond the limits, are refused.


@pytest.mark.parametrize("legacy", [True, False], ids=["legacy", "zip"])
@pytest.mark.parametrize(
    ("count", "size", "stride", "offset"),
    [
        (1, (2,), (1,), 0),
        (4, (5,), (1,), 0),
        (4, (10**10,), (1,), 0),
        (4, (10**10, 10**10), (0, 0), 0),
        (4, (2, 2), (4, 1), 0),
        (4, (1,), (1,), 4),
        (4, (1,), (1,), -1),
        (4, (2,), (-1,), 1),
        (4, (-2,), (1,), 0),
        (4, (2, 2), (1,), 0),
        (4, (1,) * 65, (1,) * 65, 0),
        (4, (0, 2**62, 2**62), (1, 1, 1), 0),
        (4, (0,), (1,), 5),
    ],
)
def test_a_tensor_that_does_not_fit_its_storage_is_damage(legacy, count, size, stride, offset):
    stored = write.storage("0", count, legacy=legacy)
    value = write.entries(w=write.tensor(stored, size, stride=stride, offset=offset))
    raw = 4 * write.ONE
    if legacy:
        data = write.legacy_file(value, {"0": (4, raw)})
    else:
        data = write.zip_file(write.pickled(value), {"0": raw})
    with pytest.raises(SourceError) as caught:
        read_torch(data)
    assert caught.value.code == "E_CORRUPT"


@pytest.mark.parametrize(
    "keys", [{}, {"1": (1, write.ONE)}, {"0": (1, write.ONE), "1": (1, write.ONE)}, {"0": (1, b"")}]
)
def test_a_legacy_file_must_hold_the_storages_it_speaks_of(keys):
    value = write.entries(w=write.tensor(write.storage("0", 1, legacy=True), (1,)))
    assert read_torch(write.legacy_file(value, {"0": (1, write.ONE)}))[0]["w"].tolist() == [1.0]
    with pytest.raises(SourceError) as caught:
        read_torch(write.legacy_file(value, keys))
    assert caught.value.code == "E_CORRUPT"


@pytest.mark.parametrize(
    ("limits", "word"),
    [
        (Limits(max_tensors=2), "max_tensors"),
        (Limits(max_header=50), "max_header"),
    ],
)
@pytest.mark.parametrize("allow", [True, False])
def test_limits_are_kept_and_the_hint_raises_them(limits, word, allow):
    buffer = io.BytesIO()
    torch.save({name: torch.ones(1) for name in "abc"}, buffer)
    with pytest.raises(SourceError, match="more") as caught:
        read_torch(buffer.getvalue(), access=Access(allow_pickle=allow, limits=limits))
    assert caught.value.code == "E_LIMIT"
    assert word in caught.value.hint


def test_a_storage_is_copied_once_whatever_its_bytes_are_taken_for():
    def taken(kind):
        stored = write.storage("0", 8, kind="torch.storage.UntypedStorage")
        hooks = write.call("collections.OrderedDict")
        rest = (write.number(0), write.numbers(1), write.numbers(1), b"\x89", hooks)
        return write.call("torch._utils._rebuild_tensor_v3", stored, *rest, write.named(kind))

    kinds = ("torch.float32", "torch.float64", "torch.int16", "torch.uint8")
    value = write.entries(**{kind: taken(kind) for kind in kinds})
    content, _ = read_torch(write.zip_file(write.pickled(value), {"0": 2 * write.ONE}))
    assert [str(tensor.dtype) for tensor in content.values()] == list(kinds)
    assert len({tensor.untyped_storage().data_ptr() for tensor in content.values()}) == 1
