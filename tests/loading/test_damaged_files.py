"""One flipped bit in an archive is noticed, and damage never escapes as a foreign exception."""

import io
import zipfile
from contextlib import suppress

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save

from memaudit.errors import MemauditError, SourceError
from memaudit.loading.checkpoint import open_checkpoint

WEIGHTS = {"a": torch.arange(64.0).reshape(8, 8), "b": torch.ones(3, dtype=torch.int16)}


def written(how):
    buffer = io.BytesIO()
    if how == "safetensors":
        return save(WEIGHTS, metadata={"k": "v"})
    if how == "npz":
        np.savez_compressed(buffer, **{k: v.numpy() for k, v in WEIGHTS.items()})
    else:
        content = {"epoch": 1, "state_dict": WEIGHTS, "names": ["x", ("y", 2.0)]}
        torch.save(content, buffer, _use_new_zipfile_serialization=how == "torch")
    return buffer.getvalue()


FORMATS = ("safetensors", "torch", "torch-legacy", "npz")
BYTES = {how: written(how) for how in FORMATS}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("damage") / "model.bin"


@pytest.mark.parametrize("how", ["torch", "npz"])
def test_one_flipped_bit_in_a_member_is_noticed(path, how):
    data = BYTES[how]
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        member = max(archive.infolist(), key=lambda m: m.compress_size)
        with archive.open(member) as stream:
            start = stream._orig_compress_start  # type: ignore[attr-defined]
    for offset in range(0, member.compress_size, 7):
        damaged = bytearray(data)
        damaged[start + offset] ^= 4
        path.write_bytes(damaged)
        with pytest.raises(SourceError) as caught:
            open_checkpoint(path)
        assert caught.value.code == "E_CORRUPT"


def test_a_file_that_was_saved_without_checksums_is_called_that(path):
    usual = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(compute_crc32=False)
    try:
        torch.save(WEIGHTS, path)
    finally:
        torch.serialization.set_crc32_options(usual)
    with pytest.raises(SourceError) as caught:
        open_checkpoint(path)
    assert caught.value.code == "E_CORRUPT"
    assert "saved without checksums, or is damaged" in caught.value.fact
    assert "set_crc32_options(True)" in caught.value.hint


@pytest.mark.parametrize("how", FORMATS)
def test_every_truncation_is_refused(path, how):
    data = BYTES[how]
    for length in range(0, len(data), max(1, len(data) // 60)):
        path.write_bytes(data[:length])
        with pytest.raises(SourceError) as caught:
            open_checkpoint(path)
        assert caught.value.code in ("E_CORRUPT", "E_UNSAFE_FORMAT", "E_LIMIT")


@settings(
    max_examples=400, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(
    how=st.sampled_from(FORMATS),
    edits=st.lists(
        st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=6
    ),
)
def test_damage_raises_nothing_but_our_own_errors(path, how, edits):
    damaged = bytearray(BYTES[how])
    for place, value in edits:
        damaged[int(place * len(damaged))] = value
    path.write_bytes(damaged)
    with suppress(MemauditError):
        assert open_checkpoint(path).tensors
