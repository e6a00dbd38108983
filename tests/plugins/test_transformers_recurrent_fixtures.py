"""Decays and eigenvalues of the reference checkpoints are the recorded ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from memaudit_transformers.kinds import find_recurrences, spectra_of
from memaudit_transformers.scans import decays_of, steps_of

pytestmark = pytest.mark.shared


def opened(shared: Path, family: str) -> tuple[nn.Module, dict[str, Tensor]]:
    from transformers import AutoModelForCausalLM

    folder = shared / "fixtures" / family / "small"
    model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True).eval()
    return model, load_file(folder / "io.safetensors")


def running(model: nn.Module):
    def run(tokens: Tensor) -> None:
        with torch.no_grad():
            model(input_ids=tokens, use_cache=False)

    return run


def test_the_eigenvalues_of_rwkv_are_the_recorded_ones(shared: Path) -> None:
    model, recorded = opened(shared, "rwkv_hf")
    found = find_recurrences(model)
    assert [r.layer for r in found] == ["rwkv.blocks.0.attention", "rwkv.blocks.1.attention"]
    eigenvalues = torch.stack([r.at_rest() for r in found])
    torch.testing.assert_close(eigenvalues, recorded["eigs_real"], rtol=0, atol=1e-7)
    for spectrum, expected in zip(
        spectra_of(found, running(model), recorded["input"]),
        recorded["eigs_real"].numpy(),
        strict=True,
    ):
        assert abs(spectrum.eigenvalues - expected).max() < 1e-7
        assert spectrum.points == ()


@pytest.mark.parametrize(
    ("family", "layers"),
    [
        ("mamba1_hf", "backbone.layers.{}.mixer"),
        ("mamba2_hf", "backbone.layers.{}.mixer"),
    ],
)
def test_the_step_sizes_of_mamba_are_the_recorded_ones(
    shared: Path, family: str, layers: str
) -> None:
    model, recorded = opened(shared, family)
    found = find_recurrences(model)
    assert [r.layer for r in found] == [layers.format(i) for i in range(2)]
    steps = steps_of(found, running(model), recorded["input"][:1])
    for i in range(2):
        step = steps[layers.format(i)]
        torch.testing.assert_close(step.sizes[0], recorded[f"dt_layer{i}"], rtol=0, atol=1e-5)
        raw = model.get_parameter(layers.format(i) + ".A_log").detach()
        torch.testing.assert_close(step.rates, torch.exp(raw), rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("family", "layers"),
    [
        ("mamba2_hf", "backbone.layers.{}.mixer"),
        ("recurrentgemma_hf", "model.layers.{}.temporal_block.rg_lru"),
        ("xlstm_hf", "backbone.blocks.{}.mlstm_layer"),
    ],
)
def test_decays_over_data_are_the_recorded_ones(shared: Path, family: str, layers: str) -> None:
    model, recorded = opened(shared, family)
    found = find_recurrences(model)
    decays = decays_of(found, running(model), recorded["input"])
    assert list(decays) == [layers.format(i) for i in range(2)]
    for i, heard in enumerate(decays.values()):
        assert heard.shape[:2] == (2, 256)
        torch.testing.assert_close(heard[0], recorded[f"decay_layer{i}"], rtol=0, atol=1e-5)


def test_quantiles_of_the_recorded_step_sizes_give_the_points_of_the_spectrum(shared: Path) -> None:
    model, recorded = opened(shared, "mamba1_hf")
    found = find_recurrences(model)
    spectra = spectra_of(found, running(model), recorded["input"][:1])
    for i, spectrum in enumerate(spectra):
        sizes = recorded[f"dt_layer{i}"].double().sort(0).values
        rates = torch.exp(found[i].module.get_parameter("A_log").detach().double())
        assert [point.at for point in spectrum.points] == ["dt 5 %", "dt 50 %", "dt 95 %"]
        for point, row in zip(spectrum.points, (12, 127, 242), strict=True):
            # The nearest of 256 sorted values to 5, 50 and 95 %, give or take one of them.
            near = [torch.exp(-sizes[row + k][:, None] * rates).numpy().ravel() for k in (-1, 2)]
            assert (near[0] + 1e-5 >= abs(point.eigenvalues)).all()
            assert (near[1] - 1e-5 <= abs(point.eigenvalues)).all()
