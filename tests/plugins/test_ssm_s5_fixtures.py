"""The reference checkpoint of s5-pytorch comes out as it was recorded."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import memaudit

pytestmark = pytest.mark.shared
SIGNALS = ("", "heaviside_", "impulse_", "zero_")
#: Of the largest recorded number; the double-precision record itself is exact to rounding.
LIMITS = {"float32": 1e-4, "float64": 1e-9}


@pytest.fixture
def folder(shared: Path) -> Path:
    return shared / "fixtures" / "s5_pytorch" / "small"


@pytest.fixture
def recorded(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "io.safetensors")


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


@pytest.mark.parametrize("execution", ["convolution", "stepping"])
def test_the_first_layer_answers_as_the_stepped_original(folder, recorded, execution):
    subject = memaudit.load(folder, execution=execution)
    part = subject.linear_parts()["layers.0"]
    found = part.respond(recorded["layer0_ssm_input64"][None])[0]
    torch.testing.assert_close(found, recorded["layer0_ssm_output_step64"], rtol=0, atol=1e-11)


def test_eigenvalues_are_those_recorded_in_their_order(folder, recorded):
    subject = memaudit.load(folder)
    found = torch.stack([torch.from_numpy(s.eigenvalues) for s in subject.spectra()])
    wanted = torch.complex(recorded["eigs_real"], recorded["eigs_imag"])
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
    rates = [subject.weights()[f"layers.{i}.s5.seq.Lambda"] for i in range(2)]
    wanted = torch.complex(recorded["Lambda_real"], recorded["Lambda_imag"])
    assert torch.equal(torch.stack(rates), wanted)


def test_the_kernel_of_the_first_layer_is_the_recorded_one(folder, recorded):
    subject = memaudit.load(folder)
    kernel = subject.linear_parts()["layers.0"].kernel(0, 64)
    kernel[0] -= torch.diag(subject.weights()["layers.0.s5.seq.D"])
    torch.testing.assert_close(kernel, recorded["kernel64"], rtol=0, atol=1e-12)


def test_what_the_file_does_not_say_stands_in_the_report(folder):
    identity = memaudit.load(folder).identity
    assert identity.whole
    assert set(identity.assumed) == {"liquid", "disc", "degree", "pool"}
    assert any("follow each other" in note for note in identity.notes)
