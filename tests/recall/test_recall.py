"""The recall probe against closed forms, on models whose state is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

import memaudit
from examples.reproduce.vandermonde import roots_of_unity
from memaudit.errors import ArgumentError
from memaudit.interfaces import AbstractSubject, Setting, Status
from memaudit.numerics.linear import Modal
from memaudit.numerics.signals import seeded
from memaudit.recall.probe import Recall
from memaudit.report import Identity, Report
from memaudit.testing import check_probe
from memaudit_ssm import LRU
from memaudit_ssm.subject import SystemPart
from tests.linear_parts import BankPart, Host, scalar
from tests.recall.test_cross_fit import fitted, states_of

SHORT = Setting(horizon=32)


class Stepped(nn.Module):
    """x_t = A x_{t-1} + B u_t, read as it is; it shows its state."""

    def __init__(self, a, b) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.as_tensor(a, dtype=torch.float64))
        self.b = nn.Parameter(torch.as_tensor(b, dtype=torch.float64))

    def initial_state(self):
        return self.a.new_zeros(len(self.a))

    def step(self, state, u):
        return state @ self.a.T + u @ self.b.T

    def forward(self, u):
        state, found = self.initial_state().expand(len(u), -1), []
        for now in u.unbind(1):
            state = self.step(state, now)
            found.append(state[:, :1])
        return torch.stack(found, 1)


class Delayed(AbstractSubject):
    """One delay of a step in a hidden layer; the answer is nothing, or the mean when pooled."""

    input_size, vocabulary = 2, None
    device, dtype = torch.device("cpu"), torch.float32

    def __init__(self, *, pooled=True, hidden=True, longest=None, power=1) -> None:
        self.identity = Identity("delayed", "wrap", "callable", 0, "float32", "cpu")
        self.pooled, self.hidden, self.longest, self.power = pooled, hidden, longest, power

    def layers(self):
        return ("early", "late") if self.hidden else ()

    def respond(self, inputs):
        return inputs.mean(1) if self.pooled else 0 * inputs

    def respond_with_hook(self, inputs, hook):
        if self.hidden:
            late = torch.cat([torch.zeros_like(inputs[:, :1]), inputs[:, :-1]], 1)
            hook("early", late)
            hook("late", late.repeat(1, 1, 2) ** self.power)
        return self.respond(inputs)


def line(size):
    return Stepped(np.eye(size, k=-1), np.eye(size, 1))


def recalled(module, setting=SHORT, **options):
    subject = memaudit.wrap(module, input_size=1) if isinstance(module, nn.Module) else module
    return Recall(**options).measure(subject, setting)


def test_a_delay_line_recalls_its_size_and_nothing_before():
    (found,) = recalled(line(6)).decodings
    assert (found.kind, found.state, found.numbers, found.inputs) == ("state", "Stepped", 6, 1)
    np.testing.assert_allclose(found.values[:6], 1.0, atol=1e-9)
    assert found.values[6:].max() < 2 * found.floor
    assert found.half == 6
    assert found.capacity == pytest.approx(6.0, abs=0.02)
    assert found.status is Status.OK


def test_a_saturated_state_recalls_less_than_a_linear_one():
    class Saturated(Stepped):
        def step(self, state, u):
            return torch.tanh(3 * super().step(state, u))

    made = (0.9 * np.eye(4, k=-1), np.eye(4, 1))
    linear, bent = (recalled(kind(*made)).capacity for kind in (Stepped, Saturated))
    assert bent < 0.8 * linear


def test_the_scale_of_the_inputs_is_that_which_was_asked_for():
    class Bent(Stepped):
        def step(self, state, u):
            return torch.tanh(super().step(state, u))

    small, large = (
        recalled(Bent(np.eye(4, k=-1), np.eye(4, 1)), scale=s).capacity for s in (0.1, 10.0)
    )
    assert small == pytest.approx(4.0, abs=0.05)
    assert large < 3.5


def test_hidden_states_are_read_where_no_recurrence_is_known():
    found = recalled(Delayed())
    assert [(d.state, d.kind, d.numbers) for d in found.decodings] == [
        ("early", "hidden", 2),
        ("late", "hidden", 4),
    ]
    for state in found.decodings:
        assert state.values[1] == pytest.approx(1.0, abs=1e-6)
        assert state.values[0] < 2 * state.floor
        assert state.capacity == pytest.approx(2.0, abs=0.05)
        assert state.half == 0


def test_a_pooled_model_without_layers_says_that_it_shows_no_state():
    found = recalled(Delayed(hidden=False))
    assert found.decodings == ()
    assert found.status is Status.NO_STATE
    assert found.capacity is None


def test_a_model_of_few_steps_is_fed_few_and_one_of_hardly_any_none():
    assert recalled(Delayed(longest=20)).lags == 10
    found = recalled(Delayed(longest=2))
    assert (found.status, found.decodings) == (Status.TOO_SHORT, ())


def test_a_state_that_overflows_is_said_to():
    (found,) = recalled(Stepped([[1e9]], [[1.0]])).decodings
    assert found.status is Status.DIVERGED
    assert found.capacity is None


def test_real_inputs_are_fed_where_there_are_some():
    class Spoken(Delayed):
        def natural_inputs(self, count, generator):
            return torch.tensor([[5.0, 5.0], [6.0, 6.0], [7.0, 7.0]])

    found = recalled(Spoken())
    assert "3 real inputs" in found.fed
    assert found.decodings[0].inputs == 1
    assert found.capacity == pytest.approx(1.0, abs=0.02)


def test_a_bare_layer_has_the_closed_form_and_so_have_samples_of_its_state():
    layer = LRU(2, 5, radii=(0.5, 0.9), generator=seeded(1))
    found = memaudit.scan(layer, queries=[], probes=["recall"], horizon=64).recall
    (state,), (linear,) = found.decodings, found.linear
    assert (state.exact, state.kind, state.numbers) == (True, "state", 10)
    assert linear.capacity == pytest.approx(10.0)
    assert state.capacity == pytest.approx(10.0, abs=0.1)
    system = layer.system()
    u = torch.randn(8, 2000, 2, generator=seeded(9), dtype=torch.float64)
    wide = Modal(*(t.detach().to(torch.complex128) for t in (system.eigenvalues, system.inputs)), u)
    measured, _ = fitted(states_of(wide, u), u)
    np.testing.assert_allclose(measured.numpy(), linear.stationary.values[:24], atol=0.015)


def test_roots_of_unity_hold_as_many_inputs_as_there_are_of_them():
    modes = roots_of_unity(16)
    system = Modal(modes, torch.ones(16, 1).to(modes.dtype), torch.ones(1, 16).to(modes.dtype))
    (found,) = recalled(Host({"ring": SystemPart(system, "auto")})).linear
    by_count = {item.count: item for item in found.lengths}
    assert by_count[16].condition == pytest.approx(1.0)
    assert by_count[16].error < 1e-14
    assert by_count[16].rounded_error < 1e-6
    # They come in pairs of conjugates, and 1 and -1 are real.
    assert (found.dtype, found.numbers, found.stationary) == ("float32", 16, None)
    # The inputs of 16 steps ago stand in the same place.
    assert (by_count[32].rank, by_count[32].condition) == (16, math.inf)
    np.testing.assert_allclose(found.values, 0.5, atol=1e-9)
    np.testing.assert_allclose(found.errors, math.sqrt(0.5), atol=0.25)


def test_few_components_are_read_back_from_a_state_that_many_inputs_overflow():
    layer = LRU(1, 32, radii=(0.99, 1.0), generator=seeded(0))
    setting = Setting(horizon=256)
    found = recalled(memaudit.load(layer), setting, components="4,16,999").linear[0]
    assert [item.count for item in found.sparse] == [4, 16]
    assert found.lengths[-1].condition == math.inf
    assert found.sparse[0].condition < found.sparse[1].condition < 1e6
    assert found.sparse[0].rounded_error < 1e-4


def test_a_bank_is_looked_at_one_input_at_a_time():
    class Shown(BankPart):
        def reach(self, start, stop):
            lags = torch.arange(start, stop, dtype=torch.float64)[:, None]
            return (self.lam.double() ** lags)[:, None]

    (found,) = recalled(Host({"bank": Shown(np.linspace(0.1, 0.9, 40))})).linear
    assert (found.numbers, found.inputs, found.channels) == (1, 40, 16)
    assert found.capacity == pytest.approx(40.0)


@pytest.mark.parametrize("name", ["lstm", "lru", "bert"])
def test_the_report_comes_back_from_json_as_it_was(tmp_path, name):
    report = memaudit.scan(f"demo:{name}", queries=[], probes=["recall"], horizon=32, level="quick")
    assert Report.load(report.save(tmp_path / "report.json")) == report
    assert report.recall.capacity > 1


def test_the_parts_of_a_host_stand_behind_each_other():
    one, other = recalled(line(2)), recalled(line(3))
    joined = type(one).joined({"one": one, "other": other})
    assert joined.capacity == pytest.approx(3.0, abs=0.05)
    again = type(joined).from_dict(joined.to_dict())
    assert again == joined


@pytest.mark.parametrize("subject", [Delayed(), Host({"ring": scalar(0.9)})])
def test_the_probe_keeps_the_laws(subject):
    check_probe(Recall(), subject)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"lags": 1}, "recall.lags is '1'"),
        ({"lags": True}, "recall.lags is 'True'"),
        ({"components": "4,x"}, "recall.components"),
        ({"components": 0}, "recall.components is '0'"),
        ({"scale": 0.0}, "recall.scale is '0.0'"),
        ({"scale": "big"}, "recall.scale is 'big'"),
        ({"rounding": "float31"}, "recall.rounding is 'float31'"),
        ({"rounding": []}, r"recall.rounding is '\[\]'"),
    ],
)
def test_what_cannot_be_measured_is_refused(options, told):
    with pytest.raises(ArgumentError, match=told):
        Recall(**options)
