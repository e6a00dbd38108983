"""Archives in one form only, so that whoever reads them next reads the same."""

import io
import zipfile

import numpy as np
import pytest
import torch

from memaudit.errors import SourceError
from memaudit.loading import access
from memaudit.loading.access import SAFE, Access, Limits
from memaudit.loading.checkpoint import open_checkpoint
from memaudit.loading.formats import find_directory, read_archive, read_members
from memaudit.loading.numpy_file import LONGEST_HEADER, BadHeader, read_array_header
from tests.loading.crooked_archives import (
    ARRAYS,
    Part,
    archive,
    array,
    crooked,
    header_only,
    torch_parts,
)

CROOKED = crooked()


@pytest.mark.parametrize("what", CROOKED)
def test_a_crooked_archive_is_refused(tmp_path, what):
    data, code = CROOKED[what]
    (tmp_path / "model.pt").write_bytes(data)
    with pytest.raises(SourceError) as caught:
        open_checkpoint(tmp_path / "model.pt")
    assert caught.value.code == code
    assert caught.value.hint


@pytest.mark.parametrize("what", ARRAYS)
def test_an_array_that_is_none_is_refused(tmp_path, what):
    data, code = ARRAYS[what]
    (tmp_path / "model.npz").write_bytes(archive([Part(b"w.npy", data)]))
    with pytest.raises(SourceError) as caught:
        open_checkpoint(tmp_path / "model.npz")
    assert caught.value.code == code
    assert "w" in caught.value.fact


@pytest.mark.parametrize("large", ["", "right"])
def test_a_plain_archive_of_the_same_kind_is_opened(tmp_path, large):
    (tmp_path / "model.pt").write_bytes(archive(torch_parts(), large=large))
    assert open_checkpoint(tmp_path / "model.pt").tensors["w"].tolist() == [0, 1, 2, 3]
    both = [Part(b"a/b/../w.npy", array(np.ones(2))), Part(b"W.npy", array(np.zeros(1)))]
    (tmp_path / "model.npz").write_bytes(archive(both, large=large))
    found = open_checkpoint(tmp_path / "model.npz").tensors
    assert {name: tensor.tolist() for name, tensor in found.items()} == {
        "a/b/../w": [1, 1],
        "W": [0],
    }


def written(how, *, seekable=True):
    """What the libraries write, to a file or to a pipe."""

    class Pipe(io.BytesIO):
        def seekable(self):
            return seekable

        def tell(self):
            return super().tell() if seekable else self._no()

        def _no(self):
            raise io.UnsupportedOperation

    stream = Pipe()
    arrays = {"a": np.arange(6.0).reshape(2, 3), "é": np.zeros(0), "n": np.array(3)}
    if how == "torch":
        torch.save({k: torch.from_numpy(v) for k, v in arrays.items()}, stream)
    else:
        {"npz": np.savez, "packed": np.savez_compressed}[how](stream, **arrays)
    return stream.getvalue()


@pytest.mark.parametrize("how", ["torch", "npz", "packed"])
def test_our_directory_is_that_of_zipfile(how):
    for data in (written(how), written(how, seekable=how == "torch")):
        ours = read_members(data, find_directory(data))
        with zipfile.ZipFile(io.BytesIO(data)) as theirs:
            assert [m.name for m in ours] == theirs.namelist()
            for mine, info in zip(ours, theirs.infolist(), strict=True):
                assert (mine.size, mine.checksum) == (info.file_size, info.CRC)
                assert (mine.header, mine.end - mine.start) == (
                    info.header_offset,
                    info.compress_size,
                )
                if info.compress_type == zipfile.ZIP_STORED:
                    assert data[mine.start : mine.end] == theirs.read(info)


@pytest.mark.parametrize("how", ["npz", "packed"])
def test_arrays_come_out_as_numpy_reads_them(tmp_path, how):
    (tmp_path / "m.npz").write_bytes(written(how))
    found = open_checkpoint(tmp_path / "m.npz").tensors
    with np.load(tmp_path / "m.npz", allow_pickle=False) as arrays:
        assert list(found) == arrays.files
        for name in arrays.files:
            assert np.array_equal(found[name].numpy(), arrays[name])
            assert found[name].shape == arrays[name].shape


def test_more_members_than_allowed_are_refused_before_they_are_read():
    data = archive([Part(b"%d.npy" % i) for i in range(500)])
    few = Access(limits=Limits(max_tensors=100))
    with pytest.raises(SourceError) as caught:
        read_archive(data, few)
    assert caught.value.code == "E_LIMIT"
    assert "500" in caught.value.fact


def test_an_archive_unpacks_to_no_more_than_the_limit(tmp_path):
    np.savez_compressed(tmp_path / "m.npz", w=np.zeros(1 << 20))
    packed = (tmp_path / "m.npz").stat().st_size
    with pytest.raises(SourceError) as caught:
        open_checkpoint(tmp_path / "m.npz", Access(limits=Limits(max_bytes=2 * packed)))
    assert caught.value.code == "E_LIMIT"
    assert "max_bytes" in caught.value.hint


def test_strings_become_metadata_and_rows_of_strings_are_said(tmp_path):
    values = {"bytes": np.array(b"abc"), "text": np.array("é€"), "rows": np.array(["a", "b"])}
    np.savez(tmp_path / "m.npz", w=np.ones(1), **values, big=np.array("x", dtype=">U1"))
    found = open_checkpoint(tmp_path / "m.npz")
    assert found.metadata == {"bytes": "abc", "text": "é€", "big": "x"}
    assert "arrays of text were left out: rows" in found.notes


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (1,) * 32])
@pytest.mark.parametrize("dtype", ["<f4", ">f8", "|b1", "<c8", "|S3", ">U2", "<f2", "|u1", "|O"])
def test_headers_are_read_as_numpy_reads_them(dtype, shape, order):
    for version in ((1, 0), (2, 0)):
        stream = io.BytesIO()
        np.lib.format.write_array(stream, np.zeros(shape, dtype, order=order), version)
        stream.seek(8)
        read = getattr(np.lib.format, f"read_array_header_{version[0]}_0")
        ours = read_array_header(memoryview(stream.getvalue()))
        assert (ours.shape, ours.fortran, ours.dtype) == read(stream)
        assert ours.start == stream.tell()


@pytest.mark.parametrize(
    "text",
    [
        "{'descr': '<f8', 'fortran_order': False, 'shape': (2L, 3L), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (2L,3), }   \n",
        '{"shape": (2, 3), "fortran_order": False, "descr": "<f8"}',
    ],
)
def test_headers_that_others_wrote_are_read(text):
    found = read_array_header(memoryview(header_only(text)))
    assert (found.shape, found.fortran, found.dtype) == ((2, 3), False, np.dtype("f8"))


@pytest.mark.parametrize(
    "text",
    [
        "{'descr': " + "'' " * 3000 + "'<f4', 'fortran_order': False, 'shape': (0L,), }",
        "{'descr': '' '<f4', 'fortran_order': False, 'shape': (0L,), }",
        "{'descr': '<f4,<f4', 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (03,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'more': 1}",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (3,)}",
        "{'descr': '<f4', 'descr': '<f8', 'fortran_order': False, 'shape': (3,)}",
        "{'descr': '<f4', 'shape': (3,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}" + " " * LONGEST_HEADER,
        "{'descr': '<f4', 'fortran_order': False, 'shape': (" + "1," * 2000 + "}",
        "",
    ],
)
def test_a_header_that_numpy_never_writes_is_refused(text):
    with pytest.raises(BadHeader):
        read_array_header(memoryview(header_only(text)))


def test_arrays_called_code_are_no_torchscript(tmp_path):
    np.savez(tmp_path / "m.npz", **{"vq/code/kernel": np.ones(2), "code/constants": np.ones(1)})
    assert list(open_checkpoint(tmp_path / "m.npz").tensors) == ["vq/code/kernel", "code/constants"]


def test_a_packed_array_needs_room_for_its_bytes_and_its_tensor(monkeypatch):
    numbers = {name: np.arange(1000.0) for name in "ab"}
    stored, packed = io.BytesIO(), io.BytesIO()
    np.savez(stored, **numbers)
    np.savez_compressed(packed, **numbers)
    size = sum(member.size for member in read_archive(stored.getvalue(), SAFE)[1])
    monkeypatch.setattr(access, "available_memory", lambda: size + size // 2 - 1)
    read_archive(stored.getvalue(), SAFE)
    with pytest.raises(SourceError) as caught:
        read_archive(packed.getvalue(), SAFE)
    assert caught.value.code == "E_LIMIT"
    monkeypatch.setattr(access, "available_memory", lambda: size + size // 2)
    read_archive(packed.getvalue(), SAFE)
