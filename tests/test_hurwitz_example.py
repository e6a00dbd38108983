"""Fig. 11b of the inverse approximation paper: stable, and some starts stay."""

from __future__ import annotations

import pytest
import torch

import memaudit
from examples import hurwitz_but_persistent
from examples.hurwitz_but_persistent import Drifter, audit
from memaudit.registry import BUILT_IN
from tests.module_laws import check_dynamics

STAYING = [(0.9945, 0.7593), (-0.9292, -0.8421), (0.7469, 0.9745), (0.9, 0.95)]
LEAVING = [(0.5, -0.5), (-0.3, 0.4), (0.2, 0.1), (0.91, -0.93)]


@pytest.fixture(autouse=True)
def _the_rule(monkeypatch) -> None:
    rule = "memaudit.findings.spectrum_disagrees:SpectrumDisagrees"
    monkeypatch.setitem(BUILT_IN["findings"], "MA204", rule)


def contradictions(report) -> list[str]:
    return [item.message for item in report.findings if item.code == "MA204"]


@pytest.mark.parametrize("start", STAYING)
def test_a_start_that_never_decays_contradicts_the_spectrum(start) -> None:
    report = audit(start)
    assert report.memory["impulse"].decay.kind == "persistent"
    # W has the eigenvalue -1 twice, an Euler step of 0.1 has 0.9.
    assert report.spectrum[0].margin == pytest.approx(0.1, abs=1e-7)
    (message,) = contradictions(report)
    assert "the spectrum says decay, the measurement does not" in message
    assert "impulse: persistent" in message


@pytest.mark.parametrize("start", LEAVING)
def test_a_start_that_decays_agrees_with_it(start) -> None:
    report = audit(start)
    assert report.memory["impulse"].decay.kind == "exponential"
    # A double eigenvalue falls as t·0.9^t: slower than 0.9^t at every finite lag.
    rate = report.memory["impulse"].decay.rate
    assert rate is not None
    assert 0.09 < rate < 0.1055
    assert contradictions(report) == []


def test_the_velocities_end_at_the_three_attractors() -> None:
    draw = torch.Generator().manual_seed(0)
    starts = 2 * torch.rand(400, 2, generator=draw, dtype=torch.float64) - 1
    module = Drifter((0.0, 0.0))
    state, zero = starts, torch.zeros(len(starts), 1, dtype=torch.float64)
    for _ in range(1000):
        state = module.step(state, zero)
    velocity = torch.tanh(state @ module.weight.T)
    ends = torch.tensor([[0.0, 0.0], [1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)
    apart = (velocity[:, None] - ends).abs().amax(2)
    # Those on a cycle pass from one drift to the other now and then.
    assert float((apart.amin(1) < 0.05).double().mean()) > 0.98
    staying = apart[:, 0] > 0.5
    assert 0.03 < float(staying.double().mean()) < 0.15
    assert (apart.argmin(1) == 1).any()
    assert (apart.argmin(1) == 2).any()


def test_the_module_keeps_the_laws_of_a_recurrence() -> None:
    subject = memaudit.wrap(Drifter((0.3, 0.4)), input_size=1)
    check_dynamics(subject.dynamics()["Drifter"])


def test_the_example_shows_both_kinds_of_starts(capsys) -> None:
    hurwitz_but_persistent.main(["--starts", "2"])
    told = capsys.readouterr().out
    assert "start (-0.01, +0.54): exponential" in told
    assert "no contradiction" in told
    assert "start (-0.82, -0.74): persistent" in told
    assert "the spectrum says decay, the measurement does not" in told
