"""The measured curves of the reference checkpoints against their recorded answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import memaudit

REGRESSORS = ["gru_bi", "gru_uni", "lstm_uni", "rnn_uni"]
CAUSAL = ["gru_uni", "lstm_uni", "rnn_uni"]
pytestmark = pytest.mark.shared


def recorded(shared: Path, name: str) -> dict[str, np.ndarray]:
    """Memory by the definitions, from the recorded answers to ones, an impulse and zeros."""
    io = load_file(shared / "fixtures" / "torch_rnn" / name / "io.safetensors")
    step, impulse, zero = (io[f"{k}_output64"][0] for k in ("heaviside", "impulse", "zero"))
    return {
        "heaviside": np.abs(np.diff(step - zero, axis=0)).max(-1),
        "impulse": np.abs(impulse - zero).max(-1),
    }


@pytest.mark.parametrize("name", CAUSAL)
@pytest.mark.parametrize("query", ["heaviside", "impulse"])
def test_the_curve_at_ones_equals_the_record(shared: Path, name: str, query: str) -> None:
    source = shared / "fixtures" / "torch_rnn" / name
    curve = memaudit.scan(source, horizon=511, normalization="universal").memory[query]
    record = recorded(shared, name)[query][:511]
    assert np.abs(curve.values - record).max() <= 1e-9


@pytest.mark.parametrize("query", ["heaviside", "impulse"])
def test_a_bidirectional_model_agrees_until_it_sees_the_end(shared: Path, query: str) -> None:
    """The record ends at 512, and the backward direction feels that end; the audit runs on."""
    source = shared / "fixtures" / "torch_rnn" / "gru_bi"
    report = memaudit.scan(source, horizon=511, normalization="universal")
    curve, record = report.memory[query], recorded(shared, "gru_bi")[query][:511]
    assert np.abs(curve.values - record)[:256].max() <= 1e-9
    assert "MA301" in {finding.code for finding in report.findings}
    assert curve.decay.kind == "exponential"


@pytest.mark.parametrize("name", CAUSAL)
def test_the_measured_rate_is_that_of_the_recorded_spectrum(shared: Path, name: str) -> None:
    """Two independent ways: the curve, and the eigenvalues recorded for the state at rest."""
    folder = shared / "fixtures" / "torch_rnn" / name
    io = load_file(folder / "io.safetensors")
    slowest = -np.log(np.abs(io["eigs_real"] + 1j * io["eigs_imag"]).max())
    curve = memaudit.scan(folder, horizon=512).memory["reversed"]
    assert curve.decay.kind == "exponential"
    assert curve.decay.rate == pytest.approx(slowest, rel=0.01)


@pytest.mark.parametrize("name", CAUSAL)
@pytest.mark.parametrize("query", ["heaviside", "impulse"])
def test_the_supremum_is_at_least_the_recorded_probe(shared: Path, name: str, query: str) -> None:
    curve = memaudit.scan(shared / "fixtures" / "torch_rnn" / name, horizon=511).memory[query]
    record = recorded(shared, name)[query][:511]
    above = record > 10 * curve.floor
    assert (curve.values[above] >= (1 - 1e-9) * record[above]).all()


@pytest.mark.parametrize("name", [*REGRESSORS, "lstm_bi"])
@pytest.mark.parametrize("part", ["", "model.pt"])
def test_folder_and_file_give_the_same_audit(shared: Path, name: str, part: str) -> None:
    source = shared / "fixtures" / "torch_rnn" / name / part
    report = memaudit.scan(source, horizon=64, level="quick")
    assert report.complete
    assert report.subject.coverage == pytest.approx(1.0)
    assert set(report.memory) == {"heaviside", "impulse", "reversed"}


def test_a_pooled_classifier_is_read_from_its_recorded_prefixes(shared: Path) -> None:
    """s(n) of ones, as embeddings, against the record at n = 1, 2, 4 … (float32)."""
    folder = shared / "fixtures" / "torch_rnn" / "lstm_bi"
    io = load_file(folder / "io.safetensors")
    lengths = io["prefix_lengths"].tolist()
    curve = memaudit.scan(folder, horizon=64, normalization="universal").memory["heaviside"]
    first = io["heaviside_prefix_output"] - io["zero_prefix_output"]
    step = first[lengths.index(2)] - first[lengths.index(1)]
    assert curve.lags[0] == 0
    assert curve.values[0] == pytest.approx(np.linalg.norm(step), rel=1e-4)
