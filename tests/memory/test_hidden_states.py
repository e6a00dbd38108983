"""Memory layer by layer: hidden states are read in the passes that the model's answer needs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import memaudit
from memaudit.interfaces import AbstractSubject
from memaudit.memory.curve import longest_layers
from memaudit.report import Identity

DECAYS = {"first": 0.5, "second": 0.9, "third": 0.7}


class Cascade(AbstractSubject):
    """Three filters side by side, h_k(t) = sum_s decay_k^s u(t-s); the answer is the last one."""

    input_size, pooled = 1, False
    device, dtype = torch.device("cpu"), torch.float64

    def __init__(self, *, room: int | None = None) -> None:
        self.identity = Identity("cascade", "wrap", "callable", 0, "float64", "cpu")
        self.room = room
        self.calls = 0
        self.listened = 0

    def layers(self) -> tuple[str, ...]:
        return tuple(DECAYS)

    def respond(self, inputs: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self._filtered(inputs, DECAYS["third"])

    def respond_with_hook(
        self, inputs: torch.Tensor, hook: Callable[[str, torch.Tensor], None]
    ) -> torch.Tensor:
        self.listened += 1
        if self.room is not None and inputs.shape[0] > self.room:
            raise MemoryError
        for name, decay in DECAYS.items():
            hook(name, self._filtered(inputs, decay))
        return self._filtered(inputs, DECAYS["third"])

    def _filtered(self, inputs: torch.Tensor, decay: float) -> torch.Tensor:
        state, answers = torch.zeros_like(inputs[:, 0]), []
        for step in inputs.unbind(1):
            state = decay * state + step
            answers.append(state)
        return torch.stack(answers, 1)


@pytest.fixture(scope="module")
def report():
    return memaudit.scan(Cascade(), horizon=64)


def test_every_layer_has_the_curve_of_its_own_filter(report):
    for layer, decay in DECAYS.items():
        for query, shift in (("heaviside", 1), ("impulse", 0), ("reversed", 1)):
            curve = report.layers[layer][query]
            expected = decay ** (curve.lags + float(shift))
            seen = expected > 1e3 * curve.floor
            assert np.allclose(curve.values[seen], expected[seen], rtol=1e-6)
            assert curve.decay.rate == pytest.approx(-np.log(decay), rel=1e-2)


def test_the_layer_that_remembers_longest_is_named(report):
    assert set(longest_layers(report.layers).values()) == {"second"}
    text = memaudit.Report.from_dict(report.to_dict()).layers
    assert longest_layers(text)["impulse"] == "second"


def test_layers_that_the_window_cannot_distinguish_are_not_ranked(report):
    alike = {name: report.layers["second"] for name in ("a", "b")}
    assert longest_layers(alike) == {}


def test_scarce_memory_takes_fewer_probes_at_a_time_and_gives_the_same_curves(report):
    scarce = memaudit.scan(Cascade(room=11), horizon=64)
    for layer, curves in report.layers.items():
        for query, curve in curves.items():
            assert np.allclose(scarce.layers[layer][query].values, curve.values, atol=1e-12)


def test_where_layers_never_fit_the_answers_still_do():
    narrow = memaudit.scan(Cascade(room=1), horizon=64)
    assert narrow.layers == {}
    assert narrow.memory["impulse"].decay.kind == "exponential"
