"""Torch files, read without torch.load, hold what torch.load finds in them."""

from __future__ import annotations

import argparse
import collections
import datetime
import enum
import functools
import io
import json
import pathlib
import struct
import types
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from memaudit.errors import MemauditError
from memaudit.loading import open_checkpoint
from tests.loading import pickle_writing as write
from tests.loading.opening import opened, refusal, same_bits, same_weights, saved

COMMON = ("float64", "float32", "float16", "bfloat16", "complex64", "complex128", "bool")
WHOLE = ("int8", "int16", "int32", "int64", "uint8")


class Colour(enum.Enum):
    RED = 1


class Settings(dict):
    """As the dictionaries with attributes that trainers have."""


class Odd:
    pass


def in_torch(data: bytes) -> Any:
    return torch.load(io.BytesIO(data), weights_only=False)


def zipped(value: bytes, **storages: bytes) -> bytes:
    """A torch file with this pickle; "0" and "1" are storages with four numbers each."""
    numbers = {"0": FIRST, "1": SECOND, **storages}
    return write.zip_file(
        write.pickled(value), {k: v for k, v in numbers.items() if write.text(k) in value}
    )


FIRST = struct.pack("<4f", 0, 1, 2, 3)
SECOND = struct.pack("<4f", 100, 101, 102, 103)
HOOKS = write.call("collections.OrderedDict")
T1 = write.tensor(write.storage("0", 4), (4,))
T2 = write.tensor(write.storage("1", 4), (4,))
GIANT = write.giant(b"\x11" * 10)


# -- Tensors and plain containers.


@pytest.mark.parametrize(("zip_format", "protocol"), [(True, 2), (True, 5), (False, 4)])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_trained_model_is_what_torch_finds(zip_format: bool, protocol: int) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 2)).sum().backward()
    optimizer.step()
    content = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "epoch": 3,
        "names": ["x", ("y", 2.0)],
        "config": {(1, 2): 3, 1.5: [1], b"a": {"x": 1}, "n": 1},
    }
    found = opened(saved(content, zipped=zip_format, protocol=protocol))
    assert same_weights(found, dict(model.state_dict()))
    assert found.container == "model"
    assert not any(tensor.requires_grad for tensor in found.tensors.values())
    said = {name: json.loads(value) for name, value in found.metadata.items()}
    assert said == {"epoch": 3, "names": ["x", ["y", 2.0]], "config": {"n": 1}}


@settings(max_examples=40, deadline=None)
@given(data=st.data(), zip_format=st.booleans())
def test_views_of_shared_storages_are_what_torch_finds(data: st.DataObject, zip_format) -> None:
    dtype = getattr(torch, data.draw(st.sampled_from(COMMON + WHOLE)))
    whole = torch.arange(24).to(dtype).reshape(2, 3, 4)
    views = {
        "whole": whole,
        "row": whole[:, 1],
        "turned": whole.transpose(0, 2),
        "expanded": whole[:1, :1, :1].expand(4, 5, 2),
        "empty": torch.empty(0, 3, dtype=dtype),
        "end": whole.reshape(-1)[24:],
        "scalar": whole[1, 2, 3],
        "parameter": torch.nn.Parameter(whole[0], requires_grad=False),
        "buffer": torch.nn.Buffer(whole[1]),
    }
    if dtype.is_complex:
        views |= {"conjugate": whole.conj()}
    names = data.draw(st.lists(st.sampled_from(sorted(views)), min_size=1, unique=True))
    raw = saved({name: views[name] for name in names}, zipped=zip_format)
    found = opened(raw)
    assert list(found.tensors) == names
    assert all(same_bits(found.tensors[n], views[n].detach().resolve_conj()) for n in names)


def test_a_storage_is_copied_once_at_most_whatever_its_bytes_are_taken_for() -> None:
    def taken(kind: str) -> bytes:
        stored = write.storage("0", 16, kind="torch.storage.UntypedStorage")
        rest = (write.number(0), write.numbers(1), write.numbers(1), b"\x89", HOOKS)
        return write.call("torch._utils._rebuild_tensor_v3", stored, *rest, write.named(kind))

    kinds = ("torch.float64", "torch.float32", "torch.int16", "torch.uint8")
    found = opened(zipped(write.entries(**{kind: taken(kind) for kind in kinds}))).tensors
    assert [str(tensor.dtype) for tensor in found.values()] == list(kinds)
    assert len({tensor.untyped_storage().data_ptr() for tensor in found.values()}) <= 2


def test_big_endian_files_are_turned_round() -> None:
    raw = struct.pack(">ff", 1.5, -2.0)
    value = write.entries(
        w=write.tensor(write.storage("0", 2), (2,)),
        c=write.tensor(write.storage("1", 1, kind="torch.ComplexFloatStorage"), (1,)),
    )
    found = opened(write.zip_file(write.pickled(value), {"0": raw, "1": raw}, order="big")).tensors
    assert found["w"].tolist() == [1.5, -2.0]
    assert found["c"].tolist() == [1.5 - 2.0j]


def test_truth_values_are_true_or_false() -> None:
    stored = write.storage("0", 2, kind="torch.BoolStorage")
    data = zipped(write.entries(w=write.tensor(stored, (2,))), **{"0": b"\0\7"})
    assert opened(data).tensors["w"].view(torch.uint8).tolist() == [0, 1]


#: Of four numbers: how many are said to be there, and a view with its size, steps and beginning.
BEYOND = [
    (1, (2,), (1,), 0),
    (4, (5,), (1,), 0),
    (4, (10**10, 10**10), (0, 0), 0),
    (4, (1,), (1,), 4),
    (4, (1,), (1,), -1),
    (4, (2,), (-1,), 1),
    (4, (-2,), (1,), 0),
    (4, (2, 2), (1,), 0),
    (4, (1,) * 65, (1,) * 65, 0),
    (4, (0, 2**62, 2**62), (1, 1, 1), 0),
    (4, (1,), (2**70,), 0),
]


@pytest.mark.parametrize("legacy", [True, False], ids=["legacy", "zip"])
def test_a_tensor_that_does_not_fit_its_storage_is_damage(legacy: bool) -> None:
    for count, size, stride, offset in BEYOND:
        stored = write.storage("0", count, legacy=legacy)
        value = write.entries(w=write.tensor(stored, size, stride=stride, offset=offset))
        made = write.legacy_file(value, {"0": (4, FIRST)}) if legacy else zipped(value)
        assert (size, refusal(made).code) == (size, "E_CORRUPT")


def test_a_legacy_file_must_hold_the_storages_it_speaks_of() -> None:
    value = write.entries(w=write.tensor(write.storage("0", 1, legacy=True), (1,)))
    one = (1, write.ONE)
    assert opened(write.legacy_file(value, {"0": one})).tensors["w"].tolist() == [1.0]
    for keys in ({}, {"1": one}, {"0": one, "1": one}, {"0": (1, b"")}):
        assert refusal(write.legacy_file(value, keys)).code == "E_CORRUPT"


def test_limits_are_kept_and_the_hint_raises_them() -> None:
    data = saved({name: torch.ones(1) for name in "abc"})
    for limit, most in (("max_tensors", 2), ("max_header", 50)):
        error = refusal(data, **{limit: most})
        assert (error.code, limit in error.hint) == ("E_LIMIT", True)


# -- A tensor that would become another one, or that is lost, is refused or said.


def rebuilt(*last: bytes, size: bytes = b"") -> bytes:
    arguments = (write.storage("0", 4), b"K\x00", size or write.numbers(4), write.numbers(1))
    return write.call("torch._utils._rebuild_tensor_v2", *arguments, b"\x89", HOOKS, *last)


def parameter(state: bytes) -> bytes:
    return write.call("torch._utils._rebuild_parameter_with_state", T1, b"\x88", HOOKS, state)


def typed(state: bytes) -> bytes:
    function = write.named("torch._utils._rebuild_tensor_v2")
    arguments = write.many(
        *(write.storage("0", 4), b"K\x00", write.numbers(4), write.numbers(1), b"\x89", HOOKS)
    )
    tensor = write.named("torch.Tensor")
    return write.call("torch._tensor._rebuild_from_type_v2", function, tensor, arguments, state)


ON_A_DEVICE = write.call(
    "torch._utils._rebuild_device_tensor_from_cpu_tensor",
    *(T1, write.named("torch.float32"), write.text("cpu"), b"\x89"),
)
OTHER = write.many(write.storage("1", 4), b"K\x00", write.numbers(4), write.numbers(1))


@pytest.mark.parametrize(
    "value",
    [
        T1 + OTHER + b"b",
        T1 + b"K\x00" + write.number(7) + b"s",
        parameter(write.entries(data=T2)),
        parameter(write.many(b"N", write.entries(data=T2))),
        parameter(write.entries(real=b"K\x07")),
        typed(write.entries(data=T2)),
        typed(write.entries(scale=T2)),
        ON_A_DEVICE,
    ],
)
def test_a_tensor_that_becomes_another_one_is_refused(value: bytes) -> None:
    for allow in (True, False):
        error = refusal(zipped(write.entries(w=value)), allow_pickle=allow)
        assert error.code in ("E_UNSUPPORTED", "E_CORRUPT")


def test_remarks_at_a_tensor_change_nothing() -> None:
    remarks = write.entries(remark=b"K\x03", shape_of=write.text("hello"))
    for value in (parameter(remarks), parameter(write.many(remarks, b"N")), typed(b"N")):
        data = zipped(write.entries(w=value))
        assert opened(data).tensors["w"].tolist() == in_torch(data)["w"].tolist() == [0, 1, 2, 3]


PAIR = write.listed(write.text("w"), T1)


def used(first: bytes, then: bytes, *, change: bytes) -> bytes:
    """A dictionary with a container, a call that uses it, and a change of the container."""
    model = write.text("model") + then
    return (
        b"}("
        + write.text("opt")
        + first
        + b"q\x00"
        + model
        + write.text("optimizer")
        + b"h\x00"
        + change
        + b"u"
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
            b"}",
            write.entries(w=rebuilt(b"h\x00")),
            change=write.text("conj") + b"\x88s",
        ),
        used(b"]K\x02a", write.entries(w=rebuilt(size=b"h\x00")), change=b"K\x02a"),
    ],
    ids=["counter", "pairs", "properties", "size"],
)
def test_what_changes_after_it_was_used_is_what_torch_finds_or_refused(value: bytes) -> None:
    data = zipped(value)
    theirs = in_torch(data)["model"]
    with suppress(MemauditError):
        assert same_weights(opened(data), dict(theirs))


def test_a_dictionary_that_is_made_of_something_is_what_torch_finds() -> None:
    for value in (
        write.call("collections.OrderedDict", write.listed(PAIR)),
        write.call("collections.defaultdict", b"N", write.entries(w=T1)),
        write.call("collections.defaultdict", b"N") + write.text("w") + T1 + b"s",
        write.call("builtins.dict", write.entries(w=T2)) + write.text("w") + T1 + b"s",
    ):
        data = zipped(value)
        assert same_weights(opened(data), dict(in_torch(data)))


def test_tensors_under_keys_that_name_nothing_are_refused() -> None:
    for key in ((1,), 3.5, 2**70, "long" * 10_000, 0):
        content = {"w": torch.ones(2), key: torch.ones(2)}
        for whole in (content, {"model": content}):
            error = refusal(saved(whole))
            assert error.code == "E_UNSUPPORTED"
            assert "tensors are named by" in error.fact


def test_the_last_value_of_a_key_counts_even_if_it_cannot_be_said() -> None:
    value = b"}(" + write.text("w") + T1 + write.text("v") + T2 + write.text("w") + GIANT + b"u"
    found = opened(zipped(value))
    assert list(found.tensors) == ["v"]
    assert "left out among the tensors: w (int)" in found.notes


@pytest.mark.parametrize(
    ("tensor", "code"),
    [
        (torch.ones(3, 3).to_sparse(), "E_UNSUPPORTED"),
        (torch.ones(3, device="meta"), "E_CORRUPT"),
        (torch.zeros(1).expand(1_000_000, 1_000_000), "E_LIMIT"),
    ],
)
def test_tensors_that_are_not_plain_are_refused_by_name(tensor: torch.Tensor, code: str) -> None:
    error = refusal(saved({"layer\x1b.w\u202e": tensor}))
    assert error.code == code
    assert "layer.w" in error.fact


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_nested_and_quantized_tensors_are_refused_by_name() -> None:
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    quantized = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
    for tensor in (nested, quantized):
        assert refusal(saved({"w": tensor})).code == "E_UNSUPPORTED"


def test_views_that_together_claim_far_more_than_they_store_are_refused() -> None:
    stored = torch.zeros(1 << 21, dtype=torch.complex64).conj()
    error = refusal(saved({f"w{i}": stored for i in range(100)}))
    assert (error.code, "claim" in error.fact) == ("E_LIMIT", True)


def test_containers_that_multiply_are_left_aside_and_endless_ones_refused() -> None:
    doubled: list = [1]
    for _ in range(60):
        doubled = [doubled, doubled]
    assert opened(saved({"w": torch.ones(1), "bomb": doubled})).metadata == {}
    endless: list = []
    endless.append(endless)
    assert refusal(saved({"w": torch.ones(1), "bomb": endless})).code == "E_CORRUPT"


# -- Objects beside the tensors: settings open by default, others when they are allowed.


def test_objects_with_a_plain_meaning_become_plain_when_they_are_allowed() -> None:
    odd = Odd()
    odd.weight = torch.ones(2)  # type: ignore[attr-defined]
    plain = {
        "namespace": {"a": 1, "path": "/a/b/c"},
        "simple": {"z": 3},
        "windows": "c:\\a\\b",
        "settings": {"a": 1, "b": {"c": 2}},
        "queue": [1, 2],
        "numbers": [1.5, 3, True],
        "size": [1, 2],
        "device": "cuda:1",
        "dtype": "torch.float32",
    }
    content = {
        "state_dict": {"w": torch.ones(1), "raw": b"raw", "odd": odd},
        "namespace": argparse.Namespace(a=1, path=pathlib.PurePosixPath("/a/b/c")),
        "simple": types.SimpleNamespace(z=3),
        "windows": pathlib.PureWindowsPath("c:\\a\\b"),
        "settings": Settings(a=1, b=Settings(c=2)),
        "queue": collections.deque([1, 2]),
        "numbers": [np.float32(1.5), np.int64(3), np.bool_(True)],
        "size": torch.Size([1, 2]),
        "device": torch.device("cuda", 1),
        "dtype": torch.float32,
        "member": Colour.RED,
        "partial": functools.partial(torch.optim.Adam, lr=1),
        "class": Odd,
        "net": {"layer": torch.nn.Linear(2, 2)},
    }
    for zip_format, protocol in ((True, 2), (True, 5), (False, 4)):
        data = saved(content, zipped=zip_format, protocol=protocol)
        error = refusal(data)
        assert error.code == "E_UNSAFE_FORMAT"
        assert "argparse.Namespace" in error.fact
        assert "--allow-pickle" in error.hint
        found = opened(data, allow_pickle=True)
        assert list(found.tensors) == ["w"]
        said = {k: v if k in ("windows", "device", "dtype") else json.loads(v)
                for k, v in found.metadata.items()}  # fmt: skip
        assert said == plain
        (note,) = [n for n in found.notes if n.startswith("allow-pickle: ")]
        assert f"{__name__}.Settings (2)" in note
        (lost,) = [n for n in found.notes if n.startswith("left out among the tensors: ")]
        assert "state_dict.raw" in lost
        assert f"state_dict.odd ({__name__}.Odd)" in lost


@pytest.mark.parametrize("protocol", [2, 5])
def test_arrays_are_weights_unless_they_stand_among_the_settings(protocol: int) -> None:
    arrays = {
        "rows": np.arange(6.0).reshape(2, 3),
        "columns": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "big": np.arange(3, dtype=">f4"),
        "none": np.ones((0, 3), "f4"),
    }
    content = {"net": arrays, "hparams": {"mean": np.ones(2), "n": 3}}
    found = opened(saved(content, protocol=protocol), allow_pickle=True)
    native = {n: torch.from_numpy(a.astype(a.dtype.newbyteorder("="))) for n, a in arrays.items()}
    assert same_weights(found, native)
    assert json.loads(found.metadata["hparams"]) == {"n": 3}


def test_an_object_instead_of_a_dictionary_is_called_so() -> None:
    error = refusal(saved(datetime.date(2020, 1, 1)), allow_pickle=True)
    assert error.code == "E_UNSUPPORTED"
    assert "datetime.date" in error.fact


DICT, LIST = "omegaconf.dictconfig.DictConfig", "omegaconf.listconfig.ListConfig"
ATTRIBUTES = "pytorch_lightning.utilities.parsing.AttributeDict"


def bare(name: str) -> bytes:
    """An object without anything in it, as pickles make them since protocol 2."""
    return write.named(name) + b")\x81"


def made(name: str, **state: bytes) -> bytes:
    return bare(name) + write.entries(**state) + b"b"


def node(value: bytes) -> bytes:
    metadata = made("omegaconf.base.Metadata", ref_type=write.named("typing.Any"))
    return made("omegaconf.nodes.AnyNode", _metadata=metadata, _parent=b"N", _val=value)


def config(name: str, content: bytes) -> bytes:
    types = {"ref_type": write.named("typing.Any"), "object_type": write.named("builtins.dict")}
    kept = made("omegaconf.base.ContainerMetadata", **types)
    return made(name, _metadata=kept, _parent=b"N", _content=content)


def trained(**beside: bytes) -> bytes:
    return zipped(write.entries(state_dict=write.entries(w=T1), **beside))


def test_the_settings_of_omegaconf_and_lightning_become_plain_by_default() -> None:
    sizes = config(LIST, write.listed(node(b"K\x08"), node(b"N")))
    inner = config(DICT, write.entries(mode=node(write.text("nplr")), same=node(b"\x88")))
    linked = {"size": node(write.text("${model.d_model}")), "pool": config(DICT, b"N")}
    settings = write.entries(layer=inner, sizes=sizes, **linked)
    filled = bare(ATTRIBUTES) + b"(" + write.text("hidden") + b"K\x03u"
    keys = write.named("pytorch_lightning.callbacks.model_checkpoint.ModelCheckpoint")
    found = opened(
        trained(
            hyper_parameters=config(DICT, settings),
            hparams=filled,
            callbacks=b"}(" + keys + write.entries(best=b"K\x01") + b"u",
        )
    )
    assert found.tensors["w"].tolist() == [0, 1, 2, 3]
    assert json.loads(found.metadata["hyper_parameters"]) == {
        "layer": {"mode": "nplr", "same": True},
        "sizes": [8, None],
        "size": "${model.d_model}",
        "pool": None,
    }
    assert json.loads(found.metadata["hparams"]) == {"hidden": 3}
    (note,) = [n for n in found.notes if n.startswith("settings: ")]
    assert all(f"{name} (" in note for name in (DICT, LIST))


def test_what_is_no_class_of_settings_stays_refused() -> None:
    for name in (f"{DICT}.merge_with", "omegaconf.OmegaConf", "my.Settings"):
        error = refusal(trained(good=config(DICT, write.entries(a=node(write.named(name))))))
        assert (error.code, name in error.fact) == ("E_UNSAFE_FORMAT", True)
        assert "--allow-pickle" in error.hint


@pytest.mark.shared
def test_every_reference_checkpoint_of_torch_is_what_torch_finds(shared: pathlib.Path) -> None:
    found = [p for p in shared.rglob("*") if p.suffix in (".pt", ".pth", ".bin", ".ckpt")]
    assert found
    for path in found:
        weights = open_checkpoint(path)
        content = torch.load(path, map_location="cpu", weights_only=False, pickle_module=Blind)
        assert same_weights(weights, dict(content.get(weights.container, content))), path


class Ignored:
    """Stands for every class that is not installed here."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        pass


class Blind(types.ModuleType):
    """A pickle module for torch.load that knows torch, collections and nothing else."""

    import pickle

    class Unpickler(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            known = module.partition(".")[0] in ("torch", "collections", "__builtin__")
            return super().find_class(module, name) if known else Ignored


@pytest.mark.shared
def test_the_settings_of_the_omegaconf_reference_are_those_it_was_made_with(shared) -> None:
    folder = shared / "fixtures/s4_v4_lightning/nplr_omegaconf"
    found = open_checkpoint(folder / "last.ckpt")
    stated = json.loads((folder / "meta.json").read_text())["config"]
    assert json.loads(found.metadata["hyper_parameters"]) == stated


class Flagged:
    """A tensor that is stored with properties of a lazy view."""

    def __init__(self, tensor: torch.Tensor, flags: dict) -> None:
        self.arguments = (
            tensor.storage(),
            0,
            tuple(tensor.shape),
            tensor.stride(),
            False,
            {},
            flags,
        )

    def __reduce_ex__(self, protocol: int) -> tuple:
        return torch._utils._rebuild_tensor_v2, self.arguments


@pytest.mark.filterwarnings("ignore:TypedStorage")
def test_flags_that_torch_may_read_otherwise_are_refused():
    for flags in ({"neg": True}, {"conj": True}, {"conj": 1}):
        assert refusal(saved({"a": Flagged(torch.ones(2, 2), flags)})).code == "E_UNSUPPORTED"
