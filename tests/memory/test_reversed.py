"""The prefix of the reversed query: long enough, said, and lengthened once."""

from __future__ import annotations

import torch

import memaudit


def saturating(rate: float):
    def model(u: torch.Tensor) -> torch.Tensor:
        state, answers = torch.zeros_like(u[:, 0]), []
        for step in u.unbind(1):
            state = rate * state + (1 - rate) * torch.tanh(step)
            answers.append(state)
        return torch.stack(answers, 1)

    return memaudit.wrap(model, input_size=1)


def test_a_settled_model_uses_one_window() -> None:
    curve = memaudit.scan(saturating(0.9), horizon=128).memory["reversed"]
    assert curve.prefix == 129
    assert curve.status.name == "OK"


def test_an_unsettled_model_gets_a_longer_prefix() -> None:
    curve = memaudit.scan(saturating(0.985), horizon=128).memory["reversed"]
    assert curve.prefix == 4 * 129
    assert curve.status.name == "OK"


def test_a_model_that_never_settles_is_marked() -> None:
    report = memaudit.scan(saturating(0.9999), horizon=64)
    assert report.memory["reversed"].status.name == "UNSETTLED"
    assert "MA110" in {finding.code for finding in report.findings}


def test_a_linear_model_needs_no_settling() -> None:
    report = memaudit.scan(memaudit.wrap(lambda u: u.cumsum(1), input_size=1), horizon=64)
    assert report.memory["reversed"].status.name == "OK"
    assert report.memory["reversed"].decay.kind == "persistent"
