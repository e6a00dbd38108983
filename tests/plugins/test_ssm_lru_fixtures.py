"""The reference checkpoint of minimal-LRU, as npz and msgpack, comes out as recorded."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import memaudit
from memaudit.numerics.linear import EXECUTIONS
from tests.plugins.recorded_answers import SIGNALS, assert_answers, found_modes, recorded_modes

pytestmark = pytest.mark.shared


@pytest.fixture(params=["params.npz", "params.msgpack"])
def folder(request, shared: Path, tmp_path: Path) -> Path:
    origin = shared / "fixtures" / "lru_jax" / "small"
    for name in (request.param, "config.json"):
        shutil.copy(origin / name, tmp_path)
    return tmp_path


@pytest.fixture
def recorded(shared: Path) -> dict[str, torch.Tensor]:
    return load_file(shared / "fixtures" / "lru_jax" / "small" / "io.safetensors")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("name", SIGNALS)
def test_the_model_answers_as_recorded(folder, recorded, dtype, execution, name):
    assert_answers(folder, recorded, name, dtype=dtype, execution=execution)


def test_eigenvalues_are_those_recorded_in_their_order(folder, recorded):
    found = found_modes(memaudit.load(folder))
    torch.testing.assert_close(found, recorded_modes(recorded), rtol=0, atol=1e-12)


def test_the_kernel_of_the_first_layer_is_the_recorded_one(folder, recorded):
    subject = memaudit.load(folder)
    kernel = subject.linear_parts()["layers_0"].kernel(0, 64)
    kernel[0] -= torch.diag(subject.weights()["encoder.layers.0.seq.D"])
    torch.testing.assert_close(kernel, recorded["kernel64"], rtol=0, atol=1e-12)


def test_nothing_is_assumed(folder):
    identity = memaudit.load(folder).identity
    assert identity.whole
    assert (identity.family, identity.coverage, identity.assumed) == ("lru", 1.0, {})
