"""What silence is: zeros, or a real input around which the model is probed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import memaudit
from memaudit.errors import ArgumentError
from memaudit.subjects.callables import wrap

DECAY, RESTING = 0.8, 2.0


def gated(u: torch.Tensor) -> torch.Tensor:
    """y_t = u_t h_t with h_t = 0.8 h_{t-1} + u_t: a zero input shuts the gate."""
    state, answers = torch.zeros_like(u[:, 0]), []
    for step in u.unbind(1):
        state = DECAY * state + step
        answers.append(step * state)
    return torch.stack(answers, 1)


@pytest.fixture
def subject():
    made = wrap(gated, input_size=1)
    made.natural_inputs = lambda count, generator: torch.full((count, 1), RESTING)
    return made


def test_silence_that_shuts_a_gate_is_said(subject):
    report = memaudit.scan(subject, horizon=64, amplitudes=(1.0,))
    assert report.memory["impulse"].decay.kind == "memoryless"
    assert report.memory["heaviside"].decay.kind == "exponential"
    (finding,) = [f for f in report.findings if f.code == "MA114"]
    assert "impulse, reversed: memoryless" in finding.message


def test_a_natural_baseline_reads_what_the_state_holds(subject):
    # y_t = r h_t after an impulse x on top of r, so the difference is r 0.8^t x
    report = memaudit.scan(subject, horizon=64, amplitudes=(1.0,), baseline="natural")
    curve = report.memory["impulse"]
    expected = RESTING * DECAY ** curve.lags.astype(float)
    assert np.allclose(curve.values[1:], expected[1:], atol=1e-13)
    assert "MA114" not in {finding.code for finding in report.findings}
    assert report.settings["baseline"] == "natural"


def test_a_model_without_embeddings_has_no_natural_baseline():
    with pytest.raises(ArgumentError, match="no embeddings"):
        memaudit.scan(wrap(gated, input_size=1), horizon=64, baseline="natural")


def test_a_number_is_a_baseline_for_models_without_embeddings(subject):
    plain = wrap(gated, input_size=1)
    number = memaudit.scan(plain, horizon=64, amplitudes=(1.0,), baseline=RESTING)
    natural = memaudit.scan(subject, horizon=64, amplitudes=(1.0,), baseline="natural")
    # The embedding itself joins the probes where there is one: at lag 0 it is the largest.
    curves = [report.memory["impulse"].values[1:] for report in (number, natural)]
    assert np.allclose(*curves, rtol=0, atol=1e-13)


@pytest.mark.parametrize("baseline", ["loud", float("nan"), 1e30, True])
def test_what_can_be_no_baseline_is_refused(subject, baseline):
    with pytest.raises(ArgumentError, match="baseline"):
        memaudit.scan(subject, horizon=64, baseline=baseline)
