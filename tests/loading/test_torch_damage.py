"""Tensors that do not fit their storages, and files beyond the limits, are refused."""

import io

import pytest
import torch

from memaudit.errors import SourceError
from memaudit.loading.access import Access, Limits
from memaudit.loading.torch_file import read_torch
from tests.loading import pickle_writing as write


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
