"""The reference checkpoint of minimal-LRU, as npz and msgpack, comes out as recorded."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import memaudit

pytestmark = pytest.mark.shared
SIGNALS = ("", "heaviside_", "impulse_", "zero_")
#: Of the largest recorded number; the double-precision record itself is exact to rounding.
LIMITS = {"float32": 1e-4, "float64": 1e-9}


@pytest.fixture(params=["params.npz", "params.msgpack"])
def folder(request, shared: Path, tmp_path: Path) -> Path:
    origin = shared / "fixtures" / "lru_jax" / "small"
    for name in (request.param, "config.json"):
        shutil.copy(origin / name, tmp_path)
    return tmp_path


@pytest.fixture
def recorded(shared: Path) -> dict[str, torch.Tensor]:
    return load_file(shared / "fixtures" / "lru_jax" / "small" / "io.safetensors")


def signal(name: str, recorded: dict[str, torch.Tensor]) -> torch.Tensor:
    if not name:
        return recorded["input"].double()
    fed = torch.zeros(1, 512, recorded["input"].shape[-1], dtype=torch.float64)
    fed[:, : {"heaviside_": 512, "impulse_": 1, "zero_": 0}[name]] = 1.0
    return fed


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("execution", ["convolution", "stepping"])
@pytest.mark.parametrize("name", SIGNALS)
def test_the_model_answers_as_recorded(folder, recorded, dtype, execution, name):
    subject = memaudit.load(folder, dtype=dtype, execution=execution)
    wanted = recorded[f"{name}output" + ("64" if dtype == "float64" else "")]
    found = subject.respond(signal(name, recorded).to(subject.dtype))
    assert (found - wanted).abs().max() <= LIMITS[dtype] * wanted.abs().max()


def test_eigenvalues_are_those_recorded_in_their_order(folder, recorded):
    spectra = memaudit.load(folder).spectra()
    found = torch.stack([torch.from_numpy(s.eigenvalues) for s in spectra])
    wanted = torch.complex(recorded["eigs_real"], recorded["eigs_imag"])
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)


def test_the_kernel_of_the_first_layer_is_the_recorded_one(folder, recorded):
    subject = memaudit.load(folder)
    kernel = subject.linear_parts()["layers_0"].kernel(0, 64)
    kernel[0] -= torch.diag(subject.weights()["encoder.layers.0.seq.D"])
    torch.testing.assert_close(kernel, recorded["kernel64"], rtol=0, atol=1e-12)


def test_nothing_is_assumed(folder):
    identity = memaudit.load(folder).identity
    assert identity.whole
    assert (identity.family, identity.coverage, identity.assumed) == ("lru", 1.0, {})
