"""The reference checkpoint of s5-pytorch comes out as it was recorded."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import memaudit
from memaudit.numerics.linear import EXECUTIONS
from tests.plugins.recorded_answers import SIGNALS, assert_answers, found_modes, recorded_modes

pytestmark = pytest.mark.shared


@pytest.fixture
def folder(shared: Path) -> Path:
    return shared / "fixtures" / "s5_pytorch" / "small"


@pytest.fixture
def recorded(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "io.safetensors")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("name", SIGNALS)
def test_the_model_answers_as_recorded(folder, recorded, dtype, execution, name):
    assert_answers(folder, recorded, name, dtype=dtype, execution=execution)


@pytest.mark.parametrize("execution", ["chunks", "convolution", "stepping"])
def test_the_first_layer_answers_as_the_stepped_original(folder, recorded, execution):
    subject = memaudit.load(folder, execution=execution)
    part = subject.linear_parts()["layers.0"]
    found = part.respond(recorded["layer0_ssm_input64"][None])[0]
    torch.testing.assert_close(found, recorded["layer0_ssm_output_step64"], rtol=0, atol=1e-11)


def test_eigenvalues_are_those_recorded_in_their_order(folder, recorded):
    subject = memaudit.load(folder)
    found = found_modes(subject)
    torch.testing.assert_close(found, recorded_modes(recorded), rtol=0, atol=1e-12)
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
