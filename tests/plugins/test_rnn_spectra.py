"""Spectra of torch's recurrent layers: as recorded, and beside what is measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import memaudit
from memaudit.interfaces import Setting
from memaudit.spectrum.probe import Spectrum
from tests.module_laws import check_dynamics
from tests.plugins.recorded_answers import recorded_modes

ONE_WAY = ("lstm_uni", "gru_uni", "rnn_uni")
TWO_WAY = ("lstm_bi", "gru_bi")
FOLDER = "fixtures/torch_rnn"


def farthest(one: np.ndarray, other: np.ndarray) -> float:
    """How far the eigenvalues of either list are from the nearest of the other at most."""
    apart = np.abs(one[:, None] - other[None])
    return float(max(apart.min(0).max(), apart.min(1).max()))


@pytest.mark.shared
@pytest.mark.parametrize("name", ONE_WAY)
def test_the_eigenvalues_at_rest_are_those_recorded(shared: Path, name: str) -> None:
    folder = shared / FOLDER / name
    recorded = recorded_modes(load_file(folder / "io.safetensors")).numpy()
    found = Spectrum(trajectory=32).measure(memaudit.load(folder), Setting(level="quick")).layers
    modes = np.concatenate([item.eigenvalues for item in found])
    assert len(modes) == len(recorded)
    # A slow mode is still on its way after the 512 steps that were recorded: 0.967^512 = 4e-8.
    assert farthest(modes, recorded) < 1e-9
    assert all(item.at.startswith("rest: zero input, settled") for item in found)


@pytest.mark.shared
@pytest.mark.parametrize("name", TWO_WAY)
def test_two_directions_have_spectra_of_their_own_and_no_trajectory(
    shared: Path, name: str
) -> None:
    found = Spectrum().measure(memaudit.load(shared / FOLDER / name), Setting()).layers
    assert len(found) == 4
    assert all(item.lyapunov is None for item in found)
    assert not any("trajectory" in point.at for item in found for point in item.points)


@pytest.mark.shared
@pytest.mark.parametrize("name", ["lstm_uni", "gru_uni"])
def test_the_measured_rate_is_the_predicted_one(shared: Path, name: str) -> None:
    report = memaudit.scan(shared / FOLDER / name, level="quick", dtype="float64")
    found = {item.query: item for item in report["spectrum"].predictions}
    for query in ("impulse", "reversed"):
        assert found[query].measured == pytest.approx(found[query].rate, rel=0.01)
        assert found[query].complete


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn"])
def test_the_demos_measure_what_their_spectra_say(name: str) -> None:
    report = memaudit.scan(f"demo:{name}", queries=["reversed"])
    (found,) = report["spectrum"].predictions
    assert found.measured == pytest.approx(found.rate, rel=0.02)
    (item,) = report.spectrum
    assert item.lyapunov is not None
    assert item.lyapunov < 0


@pytest.mark.parametrize("cell", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_the_states_are_those_that_torch_goes_through(cell) -> None:
    module = cell(3, 5, num_layers=2, batch_first=True).double()
    subject = memaudit.load(module)
    (dynamics,) = subject.dynamics().values()
    check_dynamics(dynamics)
    inputs = torch.randn(1, 7, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with torch.no_grad():
        answers, _ = module(inputs)
        state = dynamics.initial()[None]
        for u in inputs.unbind(1):
            state = dynamics.step(state, u)
    top = list(dynamics.blocks.values())[-1]
    torch.testing.assert_close(state[0, top.start : top.start + 5], answers[0, -1])
