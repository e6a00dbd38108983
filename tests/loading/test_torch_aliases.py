"""Where a pickle changes what it has used, or loses a tensor, that is refused or said."""

import inspect
import io
import struct

import numpy as np
import pytest
import torch

from memaudit.errors import SourceError
from memaudit.loading.access import SAFE, Access
from memaudit.loading.checkpoint import find_weights
from memaudit.loading.pickle_child import refuse_objects
from memaudit.loading.pickle_machine import Budget, Machine
from memaudit.loading.pickle_objects import TENSOR_FIELDS, Made, Named, Pairs
from memaudit.loading.torch_file import read_torch
from tests.loading import pickle_writing as write

INERT = Access(allow_pickle=True)
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
