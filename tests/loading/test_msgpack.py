"""What flax.serialization.to_bytes wrote opens as named tensors, and nothing else does."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest
import torch

from memaudit.errors import SourceError
from memaudit.loading.access import Access, Limits
from memaudit.loading.checkpoint import open_checkpoint
from memaudit.loading.files import choose_weight_file
from tests.loading import msgpack_writing as write
from tests.loading.malformed_msgpack import MALFORMED

DTYPES = ("float64", "float32", "float16", "bfloat16", "complex64", "complex128", "bool")
WHOLE = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def opened(folder, data: bytes, *, name: str = "params.msgpack", **limits: int):
    (folder / name).write_bytes(data)
    return open_checkpoint(folder / name, Access(limits=Limits(**limits)))


def refusal(folder, data: bytes, **limits: int) -> SourceError:
    with pytest.raises(SourceError) as caught:
        opened(folder, data, **limits)
    assert caught.value.hint
    return caught.value


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return torch.equal(*(t.contiguous().reshape(-1).view(torch.uint8) for t in (a, b)))


@pytest.mark.parametrize("dtype", [*DTYPES, *WHOLE, "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("shape", [(), (0, 3), (6,), (2, 3)])
def test_an_array_of_any_dtype_comes_out_bit_for_bit(tmp_path, dtype, shape):
    numbers = torch.arange(6)[: int(np.prod(shape))].to(getattr(torch, dtype)).reshape(shape)
    found = opened(tmp_path, write.flax({"params": {"w": numbers}}))
    assert found.format == "msgpack"
    assert same_bits(found.tensors["params/w"], numbers)


def test_names_are_joined_and_keep_the_order_of_the_file(tmp_path):
    one = torch.ones(1)
    tree = {
        "params": {"z": {"b": one, "a": one}, "layers_0": {"w": one}},
        "batch_stats": {"m": one},
    }
    names = ["params/z/b", "params/z/a", "params/layers_0/w", "batch_stats/m"]
    assert list(opened(tmp_path, write.flax(tree)).tensors) == names


def test_plain_values_beside_the_arrays_become_metadata(tmp_path):
    tree: dict[str, Any] = {
        "params": {"w": torch.ones(1)},
        **{"step": 7, "name": "lru", "rate": 0.5, "sizes": [1, [2, 3]], "none": None, "on": True},
    }
    metadata = opened(tmp_path, write.flax(tree)).metadata
    assert metadata.pop("name") == "lru"
    said = {name: json.loads(value) for name, value in metadata.items()}
    assert said == {"step": 7, "rate": 0.5, "sizes": [1, [2, 3]], "none": None, "on": True}


def test_numbers_of_flax_are_read_by_their_kind(tmp_path):
    tree = {
        "scalar": write.array((), "float32", struct.pack("<f", 1.5), code=3),
        "complex": write.extension(2, write.listed(write.flax(1.0), write.flax(-2.0))),
    }
    found = opened(tmp_path, write.entries(tree))
    assert found.tensors["scalar"].tolist() == 1.5
    assert found.tensors["scalar"].shape == ()
    assert json.loads(found.metadata["complex"]) == [1.0, -2.0]


def test_an_array_in_pieces_is_put_together(tmp_path):
    whole = torch.arange(12.0).reshape(3, 4)
    flat = whole.reshape(-1)
    pieces = {
        "__msgpack_chunked_array__": True,
        "shape": {"0": 3, "1": 4},
        "chunks": {"0": flat[:5], "1": flat[5:10], "2": flat[10:]},
    }
    found = opened(tmp_path, write.flax({"params": {"w": pieces}}))
    assert same_bits(found.tensors["params/w"], whole)


def test_arrays_in_a_list_are_named_by_their_place(tmp_path):
    found = opened(tmp_path, write.flax({"w": [torch.ones(1), [torch.zeros(2), 3]]}))
    assert list(found.tensors) == ["w/0", "w/1/0"]
    assert found.metadata == {"w/1/1": "3"}


def test_the_state_of_an_optimizer_is_no_part_of_the_model(tmp_path):
    tree = {"params": {"w": torch.ones(1)}, "opt_state": {"0": {"mu": {"w": torch.ones(1)}}}}
    found = opened(tmp_path, write.flax(tree))
    assert list(found.tensors) == ["params/w"]
    assert "left out, what is no part of the model: opt_state" in found.notes


def test_bytes_are_left_out_and_said(tmp_path):
    tree = {"w": write.flax(torch.ones(1)), "blob": write.raw(b"x"), "when": b"\xd4\xff\x00"}
    found = opened(tmp_path, write.entries(tree))
    assert list(found.tensors) == ["w"]
    assert "left out, values of unknown kinds: blob, when" in found.notes


@pytest.mark.parametrize("count", [1, 15, 16, 3000])
@pytest.mark.parametrize("name", ["flax_model.msgpack", "checkpoint_100", "weights.pt"])
def test_the_format_is_read_from_the_bytes(tmp_path, count, name):
    tree = {**{f"n{i}": i for i in range(count - 1)}, "w": torch.ones(2)}
    assert opened(tmp_path, write.flax(tree), name=name).format == "msgpack"


def test_a_long_first_name_is_recognised(tmp_path):
    for length in (31, 32, 300):
        found = opened(tmp_path, write.flax({"n" * length: torch.ones(1)}))
        assert list(found.tensors) == ["n" * length]


@pytest.mark.parametrize("what", MALFORMED)
def test_malformed_bytes_are_refused(tmp_path, what):
    data, code, words = MALFORMED[what]
    error = refusal(tmp_path, data)
    assert error.code == code
    assert words in error.fact


def test_cutting_the_file_anywhere_is_noticed(tmp_path):
    data = write.flax({"params": {"w": torch.arange(3.0), "n": 300, "s": "text", "x": 1.5}})
    for length in range(1, len(data)):
        assert refusal(tmp_path, data[:length]).code == "E_CORRUPT"


def test_more_arrays_than_allowed_are_a_limit(tmp_path):
    data = write.flax({f"w{i}": torch.ones(1) for i in range(5)})
    error = refusal(tmp_path, data, max_tensors=4)
    assert (error.code, "max_tensors" in error.hint) == ("E_LIMIT", True)
    assert len(opened(tmp_path, data, max_tensors=5).tensors) == 5


def test_more_values_than_a_model_has_are_a_limit(tmp_path):
    data = write.entries({"w": write.flax(torch.ones(1)), "n": write.listed(*[b"\xc0"] * 2000)})
    assert refusal(tmp_path, data, max_tensors=100).code == "E_LIMIT"


def test_names_that_multiply_are_a_limit(tmp_path):
    """A long name around many short ones: the joined names would be far larger than the file."""
    inner = {f"{i}": None for i in range(50_000)}
    error = refusal(tmp_path, write.flax({"w": torch.ones(1), "n" * 5000: inner}))
    assert (error.code, "max_header" in error.hint) == ("E_LIMIT", True)


def test_every_rank_comes_before_msgpack(tmp_path):
    for name in ("params.msgpack", "net.npz"):
        (tmp_path / name).touch()
    chosen, notes = choose_weight_file(tmp_path)
    assert chosen.name == "net.npz"
    assert notes == ["net.npz was opened; not params.msgpack"]


def test_a_folder_of_msgpack_alone_is_opened(tmp_path):
    opened(tmp_path, write.flax({"w": torch.ones(1)}))
    assert open_checkpoint(tmp_path).format == "msgpack"


def test_an_orbax_folder_is_refused_by_name(tmp_path):
    (tmp_path / "_METADATA").write_text("{}")
    (tmp_path / "d").mkdir()
    with pytest.raises(SourceError) as caught:
        open_checkpoint(tmp_path)
    assert caught.value.code == "E_UNSUPPORTED"
    assert "Orbax" in caught.value.fact


@pytest.mark.shared
def test_the_reference_in_msgpack_is_the_one_in_numpy(shared):
    folder = shared / "fixtures/lru_jax/small"
    packed, arrays = (open_checkpoint(folder / f"params.{s}") for s in ("msgpack", "npz"))
    assert packed.tensors.keys() == arrays.tensors.keys()
    assert all(same_bits(tensor, arrays.tensors[name]) for name, tensor in packed.tensors.items())
    assert open_checkpoint(folder).files == (folder / "params.npz",)
    assert any("not io.safetensors, params.msgpack" in n for n in open_checkpoint(folder).notes)
