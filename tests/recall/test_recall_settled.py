"""Recall of states that have settled, that are slow to, and that never do."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from memaudit.errors import ArgumentError
from memaudit.interfaces import Setting
from memaudit.numerics.linear import Modal
from memaudit.numerics.signals import seeded
from memaudit.recall.decoding import DecodingTrial, StateReader
from memaudit.recall.probe import Recall
from memaudit_ssm.subject import SystemPart
from tests.linear_parts import Host
from tests.recall.test_recall import Delayed, Stepped, line, recalled

SHORT = Setting(horizon=32)


class Bare(Host):
    """A model that is its only linear layer."""

    def respond(self, inputs):
        (part,) = self.held.values()
        return part.respond(inputs)


def bare(*modes, inputs=None):
    lam = torch.tensor(modes, dtype=torch.float64)
    fed = torch.tensor(inputs or [1.0] * len(lam), dtype=torch.float64)[:, None]
    read = torch.eye(len(lam), dtype=torch.float64)
    return Bare({"layer": SystemPart(Modal(lam, fed, read), "auto")})


@pytest.mark.parametrize("lam", [1.0, 1.1])
def test_a_layer_that_never_forgets_is_read_from_rest_and_says_so(lam):
    found = recalled(bare(lam))
    (state,), (linear,) = found.decodings, found.linear
    assert linear.stationary is None
    assert (state.exact, state.stationary, state.whole) == (True, False, None)
    assert "no stationary R^2, that of 32 steps from rest" in found.note
    assert state.capacity == pytest.approx(1.0)
    assert type(found).from_dict(found.to_dict()) == found


def test_a_slow_recurrence_is_fed_until_it_has_settled():
    found = recalled(Stepped([[0.999]], [[1.0]]), Setting(horizon=64))
    (state,) = found.decodings
    # 64 lags of (1 - lam²) lam^(2k); from rest it would be nearly twice as much.
    assert state.capacity == pytest.approx(0.1202, rel=0.2)
    assert (state.stationary, found.note) == (True, "")


def test_a_recurrence_that_never_settles_says_so():
    found = recalled(Stepped([[1.0]], [[1.0]]), SHORT)
    assert not found.decodings[0].stationary
    assert "not yet stationary, R^2 may depend on when it is read: Stepped" in found.note


def test_a_hidden_state_that_grows_says_so():
    class Growing(Delayed):
        def respond_with_hook(self, inputs, hook):
            for name in self.layers():
                hook(name, inputs.cumsum(1))
            return self.respond(inputs)

    found = recalled(Growing())
    assert [d.stationary for d in found.decodings] == [False, False]
    assert found.note.endswith("early, late")


def test_a_gru_recalls_what_an_independent_regression_finds():
    gru = nn.GRU(1, 6, batch_first=True)
    for number, weight in enumerate(gru.parameters()):
        drawn = torch.randn(weight.shape, generator=seeded(number))
        weight.data = 0.5 * drawn
    (found,) = recalled(gru).decodings
    u = torch.randn(8, 4000, 1, generator=seeded(99))
    with torch.no_grad():
        states = gru(u)[0].double().numpy()[:, 200:]
    for lag in (0, 1, 2, 5):
        past = u.double().numpy()[:, 200 - lag : 4000 - lag, 0].ravel()
        x = np.c_[states.reshape(-1, 6), np.ones(past.size)]
        left = past - x @ np.linalg.lstsq(x, past, rcond=None)[0]
        assert found.values[lag] == pytest.approx(1 - left.var() / past.var(), abs=0.02)


def test_fewer_sequences_are_read_at_once_when_memory_runs_short():
    sizes = []
    run = DecodingTrial._run

    def narrow(self, half, inputs, channels):
        inner = self.reader

        def short(fed, hook):
            if len(fed) > 2:
                inner.run(fed, hook)  # all of it runs, and then memory is short
                raise MemoryError
            sizes.append(len(fed))
            inner.run(fed, hook)

        self.reader = StateReader(inner.kind, inner.sizes, short, inner.device)
        run(self, half, inputs, channels)
        self.reader = inner

    (whole,) = recalled(line(3)).decodings
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DecodingTrial, "_run", narrow)
        (found,) = recalled(line(3)).decodings
    assert set(sizes) == {2}
    assert found.samples == whole.samples
    assert found.capacity == pytest.approx(3.0, abs=0.01)


@pytest.mark.parametrize("options", [{"components": 10**9}, {"components": "4,1000000000"}])
def test_absurd_numbers_are_refused(options):
    with pytest.raises(ArgumentError, match=r"recall\.components"):
        Recall(**options)
    with pytest.raises(ArgumentError, match=r"recall\.lags"):
        Recall(lags=10**9)
