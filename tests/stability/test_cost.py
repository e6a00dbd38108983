"""What a quick measurement costs, in steps that the model is fed: the same on every machine."""

from __future__ import annotations

import pytest
import torch

import memaudit
from memaudit.interfaces import Setting
from memaudit.stability.probe import Stability
from memaudit.stability.radius import Trial

#: 21 betas and 30 draws of each, on one sequence: what `python -m benchmarks stability` times.
BENCHMARK = 21 * 30
#: A pass with gradients goes back over every step, which costs two more.
WITH_GRADIENTS = 3
STEPS = 20


@pytest.mark.parametrize("demo", ["lstm", "gru", "rnn", "s4d", "lru", "mamba", "bert"])
def test_a_quick_measurement_costs_at_most_forty_of_its_benchmarks(
    demo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed, error, along = [], Trial.error, Trial.errors_along

    def feed(trial: Trial, copies: int) -> None:
        passes = WITH_GRADIENTS if torch.is_grad_enabled() else 1
        rows, steps = trial.inputs.shape[:2]
        fed.append(passes * copies * rows * steps)

    def counted_error(trial, moved):
        feed(trial, len(next(iter(moved.values()))))
        return error(trial, moved)

    def counted_along(trial, directions, sizes):
        feed(trial, len(next(iter(directions.values()))) * len(sizes))
        return along(trial, directions, sizes)

    monkeypatch.setattr(Trial, "error", counted_error)
    monkeypatch.setattr(Trial, "errors_along", counted_along)
    found = Stability(steps=STEPS).measure(memaudit.load(f"demo:{demo}"), Setting(level="quick"))
    assert len(found.first.betas) == 11
    assert sum(fed) <= 40 * BENCHMARK * found.horizon
