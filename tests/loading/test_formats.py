"""Every usual format opens with the numbers that are in it; what is not right is refused."""

from __future__ import annotations

import hashlib
import io
import json
import struct
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError
from safetensors.torch import load, save

from memaudit.errors import MemauditError
from memaudit.loading import open_checkpoint
from tests.loading import msgpack_writing as write
from tests.loading.crooked_archives import ARRAYS, Part, archive, array, crooked, torch_parts
from tests.loading.malformed_headers import MALFORMED, entry, file, packed
from tests.loading.malformed_msgpack import MALFORMED as MALFORMED_MSGPACK
from tests.loading.opening import opened, refusal, same_bits, same_weights, saved

FORMATS = ("safetensors", "torch", "torch-legacy", "npz", "msgpack")
COMMON = ("float64", "float32", "float16", "complex64", "bool", "int8", "int16", "int64", "uint8")
#: Numbers that numpy does not have, or that came after the legacy format.
OTHERS = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "uint16", "uint32", "uint64")


def written(weights: dict[str, torch.Tensor], how: str, *, compressed: bool = False) -> bytes:
    """A file of that format."""
    if how == "safetensors":
        return save(weights, metadata={"k": "v"})
    if how == "msgpack":
        return write.flax(weights)
    if how == "npz":
        stream = io.BytesIO()
        arrays = {name: tensor.numpy() for name, tensor in weights.items()}
        (np.savez_compressed if compressed else np.savez)(stream, **arrays)
        return stream.getvalue()
    return saved(weights, zipped=how == "torch")


@st.composite
def weights(draw: st.DrawFn, dtypes: tuple[str, ...]) -> dict[str, torch.Tensor]:
    """Named tensors of any shape, with any bits."""
    found = {}
    for name in draw(st.lists(st.from_regex(r"[a-z]{1,6}", fullmatch=True), min_size=1, max_size=3,
                              unique=True)):  # fmt: skip
        dtype = getattr(torch, draw(st.sampled_from(dtypes)))
        shape = draw(st.lists(st.integers(0, 3), max_size=3))
        count = torch.Size(shape).numel() * dtype.itemsize
        raw = draw(st.binary(min_size=count, max_size=count))
        flat = torch.tensor(list(raw), dtype=torch.uint8)
        found[name] = (flat % 2 if dtype is torch.bool else flat).view(dtype).reshape(shape)
    return found


@settings(max_examples=60, deadline=None)
@given(how=st.sampled_from(FORMATS), data=st.data(), suffix=st.sampled_from([".pt", ".npz", ""]))
def test_the_bits_of_every_format_arrive_whatever_the_file_is_called(how, data, suffix) -> None:
    dtypes = COMMON if how in ("npz", "torch-legacy") else COMMON + OTHERS
    held = data.draw(weights(dtypes))
    raw = written(held, how, compressed=data.draw(st.booleans()))
    found = opened(raw, f"weights{suffix}")
    assert found.format == how
    assert found.sha256 == hashlib.sha256(raw).hexdigest()
    assert same_weights(found, held)
    assert how in ("safetensors",) or list(found.tensors) == list(held)
    misnamed = suffix == ".npz" and how != "npz"
    assert misnamed == any("is called" in note for note in found.notes)


def test_opening_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    for how in FORMATS:
        path = tmp_path / how
        path.write_bytes(before := written({"w": torch.ones(3), "n": torch.tensor(7)}, how))
        found = open_checkpoint(path).tensors
        found["w"].zero_()
        assert path.read_bytes() == before
        assert found["n"] == 7


def test_formats_without_checksums_say_so() -> None:
    for how in ("torch-legacy", "msgpack"):
        notes = opened(written({"w": torch.ones(1)}, how)).notes
        assert any("no checksums" in note for note in notes)


#: A file of each format; the first tensor is long enough to be hit.
WEIGHTS = {"a": torch.arange(64.0).reshape(8, 8), "b": torch.ones(3, dtype=torch.int16)}
BYTES = {how: written(WEIGHTS, how) for how in FORMATS}


@settings(max_examples=100, deadline=None)
@given(how=st.sampled_from(FORMATS), at=st.floats(0, 1, exclude_max=True))
def test_a_file_that_is_cut_anywhere_is_refused(how: str, at: float) -> None:
    data = BYTES[how]
    assert refusal(data[: int(at * len(data))]).code in ("E_CORRUPT", "E_UNSAFE_FORMAT")


@settings(max_examples=100, deadline=None)
@given(
    how=st.sampled_from(["torch", "npz"]),
    at=st.floats(0, 1, exclude_max=True),
    bit=st.integers(0, 7),
)
def test_one_flipped_bit_in_an_archive_changes_no_number(how: str, at: float, bit: int) -> None:
    data = bytearray(BYTES[how])
    data[int(at * len(data))] ^= 1 << bit
    with suppress(MemauditError):
        assert all(same_bits(t, WEIGHTS[name]) for name, t in opened(bytes(data)).tensors.items())


def test_a_file_that_was_saved_without_checksums_is_called_that() -> None:
    usual = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(compute_crc32=False)
    try:
        data = saved(WEIGHTS)
    finally:
        torch.serialization.set_crc32_options(usual)
    error = refusal(data)
    assert error.code == "E_CORRUPT"
    assert "set_crc32_options(True)" in error.hint


# -- Safetensors: the library reads the file; what it leaves open is decided before.


def test_a_malformed_header_is_refused() -> None:
    for what, (data, code) in MALFORMED.items():
        assert (what, refusal(data, "model.safetensors").code) == (what, code)


def test_a_type_that_an_older_torch_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch, "float4_e2m1fn_x2")
    data, _ = MALFORMED["numbers of half a byte"]
    assert refusal(data, "model.safetensors").code == "E_UNSUPPORTED"


def test_tensors_stand_in_the_order_of_their_bytes() -> None:
    data = file(struct.pack("<ff", 1, 2), z=entry(data_offsets=[4, 8]), a=entry())
    found = opened(data, "model.safetensors").tensors
    assert {name: float(tensor) for name, tensor in found.items()} == {"a": 1.0, "z": 2.0}
    assert list(found) == ["a", "z"]


def test_the_metadata_of_a_header_are_kept() -> None:
    assert opened(BYTES["safetensors"]).metadata == {"k": "v"}


@settings(max_examples=300, deadline=None)
@given(
    changes=st.lists(
        st.tuples(st.integers(0, 400), st.sampled_from(b'0123456789"{}[],:-.e\\ \0\xff')),
        min_size=1,
        max_size=3,
    )
)
def test_nothing_is_opened_that_the_library_refuses_or_reads_differently(changes) -> None:
    """A few bytes of the header are changed."""
    base = save({"v": torch.ones(2, 2, dtype=torch.int16), "w": torch.ones(3)}, metadata={"a": "b"})
    data = bytearray(base)
    for place, value in changes:
        data[place % (len(base) - 20)] = value
    try:
        found = opened(bytes(data), "model.safetensors")
    except MemauditError:
        return
    try:
        theirs = load(bytes(data))
    except SafetensorError:
        theirs = {}
    assert same_weights(found, theirs)


def test_the_limits_of_a_header_can_be_raised() -> None:
    many = {f"w{i}": entry(shape=[0], data_offsets=[0, 0]) for i in range(50)}
    data = file(b"", **many)
    assert "max_tensors" in refusal(data, max_tensors=49).hint
    assert len(opened(data, max_tensors=50).tensors) == 50
    assert "max_header" in refusal(data, max_header=100).hint
    assert "max_bytes" in refusal(data, max_bytes=len(data) - 1).hint
    assert opened(data, max_bytes=len(data))
    for error in (refusal(data, max_tensors=49), refusal(data, max_bytes=9)):
        assert error.code == "E_LIMIT"


# -- Archives in one form only, so that whoever reads them next reads the same.


def test_a_crooked_archive_is_refused() -> None:
    for what, (data, code) in crooked().items():
        assert (what, refusal(data).code) == (what, code)


def test_an_array_that_is_none_is_refused() -> None:
    for what, (data, code) in ARRAYS.items():
        error = refusal(archive([Part(b"w.npy", data)]), "model.npz")
        assert (what, error.code, "w" in error.fact) == (what, code, True)


def test_a_plain_archive_of_the_same_kind_is_opened() -> None:
    both = [Part(b"a/b/../w.npy", array(np.ones(2))), Part(b"code/W.npy", array(np.zeros(1)))]
    for large in ("", "right"):
        assert opened(archive(torch_parts(), large=large)).tensors["w"].tolist() == [0, 1, 2, 3]
        found = opened(archive(both, large=large)).tensors
        assert {name: tensor.tolist() for name, tensor in found.items()} == {
            "a/b/../w": [1, 1],
            "code/W": [0],
        }


def test_an_archive_unpacks_to_no_more_than_the_limit() -> None:
    data = written({"w": torch.zeros(1 << 20)}, "npz", compressed=True)
    assert refusal(data, max_bytes=2 * len(data)).code == "E_LIMIT"


def test_arrays_of_another_byte_order_and_of_columns_give_the_same_numbers() -> None:
    values = np.array([[1.5, -2.0], [3.0, 4.0]])
    stream = io.BytesIO()
    np.savez_compressed(stream, w=np.asfortranarray(values).astype(">f8"))
    assert opened(stream.getvalue()).tensors["w"].tolist() == values.tolist()


def test_strings_in_an_archive_become_metadata_and_what_is_left_out_is_said() -> None:
    stream = io.BytesIO()
    held = {"bytes": np.array(b"abc"), "text": np.array("é€"), "rows": np.array(["a", "b"])}
    np.savez(stream, w=np.ones(1), settings=np.array({"n": 3}, dtype=object), **held)
    error = refusal(stream.getvalue())
    assert (error.code, "settings" in error.fact) == ("E_UNSAFE_FORMAT", True)
    found = opened(stream.getvalue(), allow_pickle=True)
    assert list(found.tensors) == ["w"]
    assert found.metadata == {"bytes": "abc", "text": "é€"}
    assert "arrays of Python objects were left out: settings" in found.notes
    assert "arrays of text were left out: rows" in found.notes


# -- Msgpack, as flax writes it.


def test_malformed_msgpack_is_refused() -> None:
    for what, (data, code, words) in MALFORMED_MSGPACK.items():
        error = refusal(data, "params.msgpack")
        assert (what, error.code, words in error.fact) == (what, code, True)


def test_a_tree_of_arrays_is_named_by_its_path() -> None:
    one = torch.ones(1)
    tree = {
        "params": {"z": {"b": one, "a": one}, "layers": [one, [one, 3]]},
        "batch_stats": {"m": one},
        "opt_state": {"0": {"mu": one}},
    }
    found = opened(write.flax(tree))
    names = ["params/z/b", "params/z/a", "params/layers/0", "params/layers/1/0", "batch_stats/m"]
    assert list(found.tensors) == names
    assert found.metadata == {"params/layers/1/1": "3"}
    assert "left out, what is no part of the model: opt_state" in found.notes


def test_plain_values_beside_the_arrays_become_metadata() -> None:
    plain = {"step": 7, "rate": 0.5, "sizes": [1, [2, 3]], "none": None, "on": True}
    values = {
        **{name: write.flax(value) for name, value in plain.items()},
        "w": write.array((), "float32", struct.pack("<f", 1.5), code=3),
        "complex": write.extension(2, write.listed(write.flax(1.0), write.flax(-2.0))),
        "blob": write.raw(b"x"),
        "odd": write.extension(5, b"x"),
        "when": b"\xd6\xff\0\0\0\0",
    }
    found = opened(write.entries(values))
    assert found.tensors["w"].tolist() == 1.5
    said = {name: json.loads(value) for name, value in found.metadata.items()}
    assert said == {**plain, "complex": [1.0, -2.0]}
    assert "left out, values of unknown kinds: blob, odd, when" in found.notes


def test_an_array_in_pieces_is_put_together() -> None:
    flat = torch.arange(12.0)
    pieces = {
        "__msgpack_chunked_array__": True,
        "shape": {"0": 3, "1": 4},
        "chunks": {"0": flat[:5], "1": flat[5:10], "2": flat[10:]},
    }
    found = opened(write.flax({"params": {"w": pieces}}))
    assert same_weights(found, {"params/w": flat.reshape(3, 4)})


def test_msgpack_is_recognised_by_its_first_byte() -> None:
    for count in (1, 15, 16, 3000, 70_000):
        tree = {"w": torch.ones(2), **{f"{i}": i for i in range(count - 1)}}
        assert opened(write.flax(tree)).format == "msgpack"


def test_the_limits_of_msgpack_hold() -> None:
    many = write.flax({f"w{i}": torch.ones(1) for i in range(5)})
    assert "max_tensors" in refusal(many, max_tensors=4).hint
    assert len(opened(many, max_tensors=5).tensors) == 5
    values = write.entries({"w": write.flax(torch.ones(1)), "n": write.listed(*[b"\xc0"] * 2000)})
    assert refusal(values, max_tensors=100).code == "E_LIMIT"


# -- The reference checkpoints.


@pytest.mark.shared
def test_the_reference_in_msgpack_is_the_one_in_numpy(shared: Path) -> None:
    folder = shared / "fixtures/lru_jax/small"
    packed_file, arrays = (open_checkpoint(folder / f"params.{s}") for s in ("msgpack", "npz"))
    assert same_weights(packed_file, arrays.tensors)
    assert open_checkpoint(folder).files == (folder / "params.npz",)


def test_a_header_length_that_reads_as_text_is_no_text() -> None:
    header = json.dumps({"w": entry()}).ljust(ord("<"))
    assert opened(packed(header)).format == "safetensors"
