"""Kernels in files: numbers are read, everything else is refused and nothing is run."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memaudit.errors import SourceError
from memaudit.loading.series import read_kernel


@pytest.mark.parametrize("dtype", ["<f8", ">f4", "<i4"])
def test_an_array_is_read_in_every_order_of_bytes(tmp_path, dtype):
    values = np.arange(12.0).reshape(4, 3)
    np.save(tmp_path / "rho.npy", values.astype(dtype))
    found = read_kernel(tmp_path / "rho.npy")
    assert found.dtype == np.float64
    assert (found == values).all()


def test_an_array_in_columns_is_read_as_it_was(tmp_path):
    values = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    np.save(tmp_path / "rho.npy", values)
    assert (read_kernel(tmp_path / "rho.npy") == values).all()


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


@pytest.mark.parametrize("values", [np.zeros(()), np.zeros(0), np.zeros(3, complex)])
def test_arrays_without_a_row_of_real_numbers_are_refused(tmp_path, values):
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
