"""Our reader of safetensors against the library's: it takes no more, and it takes the same."""

import hashlib
import json
import random
import struct

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError
from safetensors.torch import load, save

from memaudit.errors import SourceError
from memaudit.loading.access import Access, Limits
from memaudit.loading.checkpoint import open_checkpoint
from memaudit.loading.safetensors_file import DTYPES
from tests.loading.malformed_headers import GOOD, MALFORMED, STRICTER, entry, file, packed

#: What the library was seen to raise: its own error, and what torch and Python add to it.
REFUSALS = (SafetensorError, KeyError, OverflowError, RuntimeError, TypeError, ValueError)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("headers") / "model.safetensors"


def theirs(data):
    try:
        return load(data)
    except REFUSALS:
        return None


def ours(path, data, access=None):
    path.write_bytes(data)
    try:
        return open_checkpoint(path, access or Access()), None
    except SourceError as error:
        return None, error


def same(mine, other):
    """Bit by bit: NaN equals itself here."""
    assert set(mine) == set(other)
    for name, tensor in mine.items():
        assert tensor.dtype == other[name].dtype
        assert tensor.shape == other[name].shape
        assert tensor.is_contiguous()
        mine_bytes, other_bytes = (
            t.contiguous().reshape(-1).view(torch.uint8) for t in (tensor, other[name])
        )
        assert torch.equal(mine_bytes, other_bytes)


@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_header_is_refused_with_its_code(path, what):
    data, code = MALFORMED[what]
    _, error = ours(path, data)
    assert error is not None
    assert (error.code, error.stage, bool(error.hint)) == (code, "open", True)
    assert (theirs(data) is None) == (what not in STRICTER)


@pytest.mark.parametrize("what", GOOD)
def test_an_unusual_header_is_read_like_the_library_reads_it(path, what):
    found, error = ours(path, GOOD[what])
    assert error is None
    same(found.tensors, theirs(GOOD[what]))
    assert found.sha256 == hashlib.sha256(GOOD[what]).hexdigest()


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_comes_out_as_it_went_in(path, dtype):
    numbers = random.Random(dtype).randbytes(24) if dtype != "BOOL" else bytes([0, 1, 1] * 8)
    shape = [1, 24 // DTYPES[dtype]]
    data = file(numbers, w=entry(dtype=dtype, shape=shape, data_offsets=[0, 24]))
    found, error = ours(path, data)
    assert error is None
    same(found.tensors, theirs(data))


def test_what_the_library_saves_is_read(path):
    generator = torch.Generator().manual_seed(1)
    weights = {
        "a": torch.randn(3, 5, generator=generator),
        "b": torch.randn(7, generator=generator).bfloat16(),
        "c": torch.randn(2, 2, generator=generator).to(torch.complex64),
        "e": torch.empty(0, 4),
        "s": torch.tensor(3),
    }
    found, _ = ours(path, save(weights, metadata={"k": "v"}))
    same(found.tensors, weights)
    assert found.metadata == {"k": "v"}


def test_tensors_stand_in_the_order_of_their_bytes(path):
    found, _ = ours(path, GOOD["entries in another order than the bytes"])
    assert list(found.tensors) == ["a", "z"]
    assert [float(t) for t in found.tensors.values()] == [1.0, 2.0]


def test_every_tensor_has_memory_of_its_own(path):
    found, _ = ours(path, save({"a": torch.ones(3), "b": torch.ones(3)}))
    found.tensors["a"].zero_()
    assert float(found.tensors["b"].sum()) == 3.0


def test_an_unknown_dtype_is_named(path):
    _, error = ours(path, MALFORMED["numbers of half a byte"][0])
    assert "F4" in error.fact


def test_the_limits_can_be_raised(path):
    many = {f"w{i}": entry(shape=[0], data_offsets=[0, 0]) for i in range(50)}
    data = file(b"", **many)
    few = Access(limits=Limits(max_tensors=49))
    assert ours(path, data, few)[1].code == "E_LIMIT"
    assert len(ours(path, data, Access(limits=Limits(max_tensors=50)))[0].tensors) == 50
    assert ours(path, data, Access(limits=Limits(max_header=100)))[1].code == "E_LIMIT"
    one = file(w=entry())
    assert ours(path, one, Access(limits=Limits(max_bytes=len(one))))[1] is None
    assert ours(path, one, Access(limits=Limits(max_bytes=len(one) - 1)))[1].code == "E_LIMIT"


@pytest.mark.parametrize("piece", ["[],", '"",', "{},", "0,"])
def test_a_header_full_of_nothing_is_refused_before_it_is_built(path, piece):
    many = Access(limits=Limits(max_tensors=100))
    text = '{"w":[' + piece * 50_000 + "0]}"
    assert ours(path, packed(text), many)[1].code == "E_LIMIT"


NUMBERS = st.one_of(
    st.integers(-2, 20),
    st.sampled_from([1 << 31, 1 << 32, 1 << 62, 1 << 63, 1 << 64, 0.5, -0.0, True, None, "4"]),
)
ENTRIES = st.one_of(
    st.fixed_dictionaries(
        {
            "dtype": st.sampled_from([*DTYPES, "F4", "X"]),
            "shape": st.lists(NUMBERS, max_size=3),
            "data_offsets": st.lists(NUMBERS, min_size=1, max_size=3),
        }
    ),
    st.sampled_from([None, [], {}, "w", ["F32", [1], [0, 4]]]),
)


def placed(draw):
    """A file that is right, as a dictionary and a body."""
    entries, at = {}, 0
    for name in draw(st.lists(st.text(max_size=4), max_size=4, unique=True)):
        dtype = draw(st.sampled_from([*DTYPES]))
        shape = draw(st.lists(st.integers(0, 3), max_size=3))
        size = DTYPES[dtype] * torch.Size(shape).numel()
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    return entries, at


@st.composite
def headers(draw):
    """Mostly right headers with one thing changed."""
    entries, size = placed(draw)
    change = draw(st.sampled_from(["none", "field", "entry", "body", "metadata"]))
    if change == "field" and entries:
        name = draw(st.sampled_from(sorted(entries)))
        key = draw(st.sampled_from(["shape", "data_offsets"]))
        if entries[name][key]:
            place = draw(st.integers(0, len(entries[name][key]) - 1))
            entries[name][key][place] = draw(NUMBERS)
    elif change == "entry":
        entries[draw(st.text(max_size=3))] = draw(ENTRIES)
    elif change == "body":
        size = max(0, size + draw(st.integers(-2, 2)))
    elif change == "metadata":
        entries["__metadata__"] = draw(
            st.one_of(st.none(), st.dictionaries(st.text(max_size=3), st.text(max_size=3)), ENTRIES)
        )
    body = draw(st.binary(min_size=size, max_size=size))
    return packed(json.dumps(entries).encode("utf-8", "surrogatepass"), body)


#: Why we may refuse what the library opens.
OUR_REASONS = ("twice", "object", "truth values", "impossible shape", "no weights", "begin")


def agree(path, data):
    mine, error = ours(path, data)
    other = theirs(data)
    if mine is not None:
        assert other is not None
        same(mine.tensors, other)
    elif other is not None:
        assert any(reason in error.fact for reason in OUR_REASONS), error.fact


@settings(
    max_examples=400, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(data=headers())
def test_we_accept_nothing_that_the_library_refuses(path, data):
    agree(path, data)


def test_no_changed_byte_makes_us_accept_what_the_library_refuses(path):
    chance = random.Random(7)
    base = file(
        chance.randbytes(20),
        __metadata__={"a": "b"},
        v=entry(dtype="I16", shape=[2, 2], data_offsets=[0, 8]),
        w=entry(shape=[3], data_offsets=[8, 20]),
    )
    (length,) = struct.unpack("<Q", base[:8])
    for _ in range(1500):
        data = bytearray(base)
        for _ in range(chance.randint(1, 3)):
            data[chance.randrange(8 + length)] = chance.choice(b'0123456789"{}[],:-.e\\ \0\xff')
        agree(path, bytes(data))
