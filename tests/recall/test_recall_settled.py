"""Recall of states that have settled, that are slow to, and that never do."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import memaudit
from memaudit.errors import ArgumentError
from memaudit.interfaces import Setting
from memaudit.memory.result import Status
from memaudit.numerics.linear import Modal
from memaudit.numerics.signals import seeded
from memaudit.recall.decoding import DecodingTrial, StateReader
from memaudit.recall.probe import Recall
from memaudit_ssm import LRU, S4
from memaudit_ssm.subject import SystemPart
from tests.linear_parts import Host
from tests.recall.test_recall import Heard, Stepped, line, recalled

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


def scanned(layer, horizon):
    return memaudit.scan(layer, queries=[], probes=["recall"], horizon=horizon).recall


def slowly(lags):
    found = scanned(LRU(1, 4, radii=(0.999, 0.9999), generator=seeded(0)), lags)
    return found, *found.decodings, *found.linear


def test_the_exact_recall_does_not_depend_on_the_lags():
    (_, few, _), (found, some, linear) = slowly(16), slowly(64)
    np.testing.assert_allclose(few.values, some.values[:16], rtol=1e-9)
    assert some.capacity < 1.0
    assert some.whole == pytest.approx(8.0)
    assert found.note == f"64 lags cut the capacity: {some.capacity:.4g} of 8 over all lags"
    # From rest the same state holds as many inputs as it has numbers.
    assert linear.capacity == pytest.approx(8.0)
    assert linear.stationary.whole == pytest.approx(8.0)


@pytest.mark.parametrize("lam", [0.5, 0.9, 0.9999])
def test_one_mode_recalls_geometrically(lam):
    (found,) = recalled(bare(lam)).decodings
    wanted = (1 - lam**2) * lam ** (2 * np.arange(32.0))
    np.testing.assert_allclose(found.values, wanted, rtol=1e-6)
    assert found.exact
    assert found.stationary


@pytest.mark.parametrize("lam", [1.0, 1.1])
def test_a_layer_that_never_forgets_is_read_from_rest_and_says_so(lam):
    found = recalled(bare(lam))
    (state,), (linear,) = found.decodings, found.linear
    assert linear.stationary is None
    assert (state.exact, state.stationary, state.whole) == (True, False, None)
    assert "no stationary R^2, that of 32 steps from rest" in found.note
    assert state.capacity == pytest.approx(1.0)
    assert type(found).from_dict(found.to_dict()) == found


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_sizes_of_any_kind_are_read(scale):
    assert recalled(bare(0.9, 0.5, inputs=(scale, scale))).capacity == pytest.approx(2.0, abs=0.01)
    stepped = Stepped([[0.8, 0.0], [0.0, 0.5]], [[scale], [scale]])
    assert recalled(stepped).capacity == pytest.approx(2.0, abs=0.05)


def test_numbers_of_different_size_are_rounded_apart():
    found = recalled(bare(0.9, 0.5, inputs=(1.0, 1e-8)), Setting(horizon=128))
    assert found.capacity == pytest.approx(2.0, abs=1e-4)
    assert found.linear[0].lengths[-1].rounded_rank == 2


def test_conjugates_in_a_state_are_counted_once():
    (found,) = scanned(S4(1, 8, rank=1, generator=seeded(0)), 64).linear
    by_count = {item.count: item for item in found.lengths}
    assert found.numbers == 8
    assert by_count[8].condition < 1e12
    assert by_count[64].rank == 8


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
    class Growing(Heard):
        def respond_with_hook(self, inputs, hook):
            for name in self.layers():
                hook(name, inputs.cumsum(1))
            return self.respond(inputs)

    found = recalled(Growing())
    assert [d.stationary for d in found.decodings] == [False, False]
    assert found.note.endswith("early, late")


@pytest.mark.parametrize("seed", range(12))
def test_noise_does_not_pass_the_floor(seed):
    found = recalled(Heard(power=2), Setting(horizon=32, seed=seed)).decodings[1]
    assert (found.status, found.capacity) == (Status.BELOW_FLOOR, 0.0)


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


def test_fewer_sequences_are_heard_at_once_when_memory_runs_short():
    heard = []
    run = DecodingTrial._run

    def narrow(self, half, inputs, channels):
        inner = self.reader

        def short(fed, hook):
            if len(fed) > 2:
                inner.run(fed, hook)  # all is heard, and then forgotten
                raise MemoryError
            heard.append(len(fed))
            inner.run(fed, hook)

        self.reader = StateReader(inner.kind, inner.sizes, short, inner.device)
        run(self, half, inputs, channels)
        self.reader = inner

    (whole,) = recalled(line(3)).decodings
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DecodingTrial, "_run", narrow)
        (found,) = recalled(line(3)).decodings
    assert set(heard) == {2}
    assert found.samples == whole.samples
    assert found.capacity == pytest.approx(3.0, abs=0.01)


@pytest.mark.parametrize("options", [{"components": 10**9}, {"components": "4,1000000000"}])
def test_absurd_numbers_are_refused(options):
    with pytest.raises(ArgumentError, match=r"recall\.components"):
        Recall(**options)
    with pytest.raises(ArgumentError, match=r"recall\.lags"):
        Recall(lags=10**9)
