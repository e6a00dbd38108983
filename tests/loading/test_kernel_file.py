"""Kernels and data in files: numbers are read, everything else is refused and nothing is run."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.io import wavfile

from memaudit.errors import ArgumentError, SourceError
from memaudit.loading.series import read_data, read_kernel, whole_series


def test_an_array_is_read_in_every_order_of_bytes_and_of_columns(tmp_path):
    values = np.asfortranarray(np.arange(12.0).reshape(4, 3))
    for dtype in ("<f8", ">f4", "<i4"):
        np.save(tmp_path / "rho.npy", values.astype(dtype))
        found = read_kernel(tmp_path / "rho.npy")
        assert found.dtype == np.float64
        assert (found == values).all()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1\n0.5\n\n# rest\n0.25\n", [1.0, 0.5, 0.25]),
        ("1, 2\n3; 4 # two columns\n", [[1.0, 2.0], [3.0, 4.0]]),
    ],
)
def test_a_line_of_text_is_a_step(tmp_path, text, wanted):
    (tmp_path / "rho.csv").write_text(text)
    assert read_kernel(tmp_path / "rho.csv").tolist() == wanted


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("1\ntwo\n", "line 2 holds 'two'"),
        ("1\n2 3\n", "line 2 has other columns"),
        ("", "empty"),
        ("1\nnan\n", "not finite"),
        ("1e999\n", "not finite"),
    ],
)
def test_text_that_is_no_kernel_is_refused(tmp_path, text, fact):
    (tmp_path / "rho.txt").write_text(text)
    with pytest.raises(SourceError, match=fact) as caught:
        read_kernel(tmp_path / "rho.txt")
    assert caught.value.source.endswith("rho.txt")


def test_pickled_objects_are_refused(tmp_path):
    np.save(tmp_path / "rho.npy", np.array([print], dtype=object), allow_pickle=True)
    with pytest.raises(SourceError, match="pickled Python objects"):
        read_kernel(tmp_path / "rho.npy")


def test_arrays_without_a_row_of_real_numbers_are_refused(tmp_path):
    for values in (np.zeros(()), np.zeros(0), np.zeros(3, complex)):
        np.save(tmp_path / "rho.npy", values)
        with pytest.raises(SourceError, match="not real numbers"):
            read_kernel(tmp_path / "rho.npy")


def test_an_array_that_is_cut_short_is_refused(tmp_path):
    np.save(tmp_path / "rho.npy", np.arange(9.0))
    whole = (tmp_path / "rho.npy").read_bytes()
    (tmp_path / "rho.npy").write_bytes(whole[:-1])
    with pytest.raises(SourceError, match="cut short"):
        read_kernel(tmp_path / "rho.npy")
    (tmp_path / "rho.npy").write_bytes(b"1\n2\n")
    with pytest.raises(SourceError, match="no array of numpy"):
        read_kernel(tmp_path / "rho.npy")


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(SourceError, match="folder"):
        read_kernel(tmp_path)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("kernels")


@given(data=st.binary(max_size=80), at=st.integers(0, 199), suffix=st.sampled_from(["npy", "txt"]))
def test_damaged_bytes_give_finite_numbers_or_a_refusal(place, data, at, suffix):
    np.save(place / "rho.npy", np.arange(9.0))
    whole = (place / "rho.npy").read_bytes()
    path = place / f"damaged.{suffix}"
    path.write_bytes(whole[:at] + data + whole[at + len(data) :] if suffix == "npy" else data)
    with contextlib.suppress(SourceError):
        assert np.isfinite(read_kernel(path)).all()


# -- Data to work on: sequences in files and arrays.


@pytest.mark.parametrize("suffix", ["npy", "npz", "csv", "wav"])
def test_the_numbers_of_a_file_are_a_batch_of_sequences(tmp_path, suffix):
    path, values = tmp_path / f"data.{suffix}", np.linspace(-0.5, 0.5, 8).reshape(4, 2)
    match suffix:
        case "npy":
            np.save(path, values)
        case "npz":
            np.savez(path, values)
        case "csv":
            np.savetxt(path, values, delimiter=",", header="left,right", comments="")
        case "wav":
            wavfile.write(path, 8000, values)
    found = whole_series(read_data(path)["data"])
    assert found.values.tolist() == values[None].tolist()
    assert found.name == path.name


def test_several_arrays_are_those_of_the_parts_of_a_host(tmp_path):
    np.savez(tmp_path / "data.npz", a=np.arange(3.0), b=np.ones((2, 3, 4)))
    found = read_data(str(tmp_path / "data.npz"))["data"]
    assert {part: tuple(given.shape) for part, given in found.given.items()} == {
        "a": (1, 3, 1),
        "b": (2, 3, 4),
    }
    with pytest.raises(ArgumentError, match=r"2 arrays are in data.npz \(a, b\)"):
        whole_series(found)


def test_what_is_no_data_is_refused(tmp_path):
    assert read_data(tmp_path / "words.txt") == {"data": None, "text": tmp_path / "words.txt"}
    (tmp_path / "none.xyz").touch()
    (tmp_path / "none.wav").write_bytes(b"RIFF")
    np.savez(tmp_path / "none.npz", a=np.float64(1))
    for source, words in (
        (tmp_path / "none.xyz", "data of the kind .xyz"),
        (tmp_path / "none.wav", "cannot be read"),
        (tmp_path / "none.npz", "no array"),
        (np.ones((2, 3), complex), "complex"),
        (np.float64(1), "shape"),
    ):
        with pytest.raises(ArgumentError, match=words):
            read_data(source)
    with pytest.raises(SourceError, match="not finite"):
        read_data(np.array([1.0, np.nan]))
    with pytest.raises(ArgumentError, match="shape"):
        whole_series(read_data(np.ones((1, 2, 3, 4)))["data"])
