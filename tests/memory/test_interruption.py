"""Ctrl-C keeps what was measured."""

from __future__ import annotations

import pytest
import torch

import memaudit
from memaudit.audit import Interrupted
from memaudit.memory import runner


def interrupting(after: int):
    """A decaying model that is interrupted at its n-th long call."""
    calls = [0]

    def model(u: torch.Tensor) -> torch.Tensor:
        if u.shape[1] > 300:
            calls[0] += 1
            if calls[0] > after:
                raise KeyboardInterrupt
        state, answers = torch.zeros_like(u[:, 0]), []
        for step in u.unbind(1):
            state = torch.tanh(0.9 * state + step)
            answers.append(state)
        return torch.stack(answers, 1)

    return memaudit.wrap(model, input_size=1)


def test_the_partial_report_has_the_probes_that_were_finished(monkeypatch) -> None:
    monkeypatch.setattr(runner, "PASS_NUMBERS", 8000)
    queries = ["heaviside", "impulse", "reversed"]
    with pytest.raises(Interrupted) as caught:
        memaudit.scan(interrupting(after=2), horizon=256, queries=queries)
    report = caught.value.report
    assert not report.complete
    assert report.memory["impulse"].status.name == "INTERRUPTED"
    assert 0 < report.memory["impulse"].probes < 11
    assert report.assumptions
    assert "MA001" in {finding.code for finding in report.findings}
    assert memaudit.Report.from_dict(report.to_dict()) == report


def test_an_early_interruption_still_has_the_assumptions() -> None:
    with pytest.raises(Interrupted) as caught:
        memaudit.scan(interrupting(after=0), horizon=256)
    assert caught.value.report.memory == {}
    assert caught.value.report.assumptions


def test_ctrl_c_while_the_findings_are_judged_keeps_the_curves(monkeypatch) -> None:
    from memaudit import audit

    def interrupted(report: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(audit, "judge", interrupted)
    with pytest.raises(Interrupted) as caught:
        memaudit.scan("demo:rnn", horizon=32, level="quick")
    assert set(caught.value.report.memory) == {"driven", "heaviside", "impulse", "reversed"}
    assert not caught.value.report.complete
