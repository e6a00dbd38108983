"""Models that tempt an auditor into a wrong number, and broken assumptions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import memaudit
from memaudit.errors import ArgumentError
from memaudit.interfaces import Setting
from memaudit.memory.probe import Assumptions
from memaudit.numerics.signals import seeded
from memaudit.subjects.callables import wrap
from tests.oracles import convolution

LAGS = np.arange(2048)


def scan(model, horizon: int = 256, **options) -> memaudit.Report:
    subject = memaudit.wrap(model, input_size=1, **options)
    return memaudit.scan(subject, horizon=horizon, queries=["heaviside", "impulse", "reversed"])


def codes(report: memaudit.Report) -> set[str]:
    return {finding.code for finding in report.findings}


def test_a_small_nonlinear_memory_does_not_hide_behind_a_skip_connection() -> None:
    """y = u + 2e-5·tanh(5h): linear to five digits, and its memory is not."""

    def model(u: torch.Tensor) -> torch.Tensor:
        state, answers = torch.zeros_like(u[:, 0]), []
        for step in u.unbind(1):
            state = 0.9 * state + step
            answers.append(step + 2e-5 * torch.tanh(5 * state))
        return torch.stack(answers, 1)

    memory = scan(model, 128, dtype="float32").memory
    true = 2e-5 * np.tanh(5 * 0.9 * 2.0**-6) / 2.0**-6
    assert not memory["impulse"].exact
    assert memory["impulse"].values[1] == pytest.approx(true, rel=0.05)
    assert memory["heaviside"].decay.kind != "memoryless"
    assert memory["reversed"].decay.kind != "memoryless"
    assert memory["reversed"].prefix is not None
    assert memory["reversed"].prefix > 100  # its own form, not the one for linear models


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_not_mistaken_for_no_answer(dtype: str) -> None:
    report = memaudit.scan("demo:gru", dtype=dtype, horizon=128)
    for curve in report.memory.values():
        assert curve.decay.kind != "memoryless"
        assert not curve.exact
    linear = next(a for a in report.assumptions if a.name == "linear")
    assert linear.holds is False


@pytest.mark.parametrize("cast_back", [False, True])
def test_hidden_single_precision_is_seen_in_the_answer(cast_back: bool) -> None:
    """float32 weights inside a float64 function: the floor is that of float32."""
    cell, generator = nn.GRU(3, 8, batch_first=True), seeded(1)
    for parameter in cell.parameters():
        parameter.data = torch.rand(parameter.shape, generator=generator) - 0.5

    def function(u: torch.Tensor) -> torch.Tensor:
        answer = cell(u.float())[0]
        return answer.double() if cast_back else answer

    report = memaudit.scan(memaudit.wrap(function, input_size=3), horizon=128)
    assert report.memory["impulse"].floor > 1e-9
    assert report.memory["impulse"].decay.kind in ("exponential", "undetermined")
    assert not {"MA304", "MA103"} & codes(report)


@pytest.mark.parametrize("ahead", [1, 20, 100, 150])
def test_looking_ahead_is_found_and_its_end_kept_out(ahead: int) -> None:
    past = convolution(0.95**LAGS)

    def model(u: torch.Tensor) -> torch.Tensor:
        later = functional.pad(u, (0, 0, 0, ahead))[:, ahead : ahead + u.shape[1]]
        return past(u) + 0.5 * later

    report = scan(model)
    assert "MA301" in codes(report)
    curve = report.memory["heaviside"]
    assert np.abs(curve.values - 0.95 ** (curve.lags + 1.0)).max() < 1e-9
    assert curve.horizon == 135
    assert report.memory["reversed"].status.name == "OK"


@pytest.mark.parametrize("horizon", [64, 520, 1024])
def test_an_echo_that_is_due_is_not_called_finite(horizon: int) -> None:
    kernel = (LAGS % 50 == 0) * 0.99 ** (LAGS / 50)
    decay = scan(convolution(kernel), horizon).memory["heaviside"].decay
    assert decay.kind != "finite"


def test_a_floor_above_epsilon_hides_the_horizon() -> None:
    past = convolution(0.95**LAGS)
    curve = scan(lambda u: past(u) + 1e12).memory["impulse"]
    assert 10 * curve.floor > 1e-3 * curve.values.max()
    assert curve.horizon is None


def test_a_delay_has_a_horizon() -> None:
    kernel = np.concatenate([np.zeros(40), 0.9**LAGS])[:2048]
    curve = scan(convolution(kernel), 160).memory["impulse"]
    assert curve.horizon == 40 + int(np.argmax(0.9**LAGS < 1e-3))


@pytest.mark.parametrize("horizon", [128, 512])
def test_a_stretched_exponential_is_no_power_law(horizon: int) -> None:
    decay = scan(convolution(np.exp(-np.sqrt(LAGS))), horizon).memory["impulse"].decay
    assert decay.kind == "undetermined"


def test_modes_of_a_linear_layer_are_no_steep_power_law() -> None:
    """A fast fall with a slow mode far below it bends like (t+1)^-7.6."""
    decay = memaudit.scan("demo:s4d", queries=["driven"]).memory["driven"].decay
    assert decay.kind == "exponential"
    assert decay.window[1] < 256


def test_a_model_that_keeps_state_is_reset_between_answers() -> None:
    class Counter(nn.Module):
        calls: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(1, dtype=torch.float64))

        def forward(self, u: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return u.cumsum(1) + self.calls

    module = Counter()
    report = memaudit.scan(memaudit.wrap(module, input_size=1), horizon=32)
    assert module.calls.item() == 0
    assert "MA303" not in codes(report)


def test_the_global_generator_is_left_alone() -> None:
    layer = nn.GRU(2, 3)
    before = torch.get_rng_state()
    memaudit.scan("demo:rnn", horizon=16, level="quick")
    memaudit.scan(layer, horizon=16, level="quick")
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("mode", [0.999, 0.9999, 1.0])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_slow_linear_modes_are_read_alike_by_every_query(mode: float, dtype: str) -> None:
    """Rounding adds up over the steps; that is no evidence against superposition."""
    gains = torch.tensor([[1.0, -0.7], [0.4, 2.0]], dtype=torch.float64)
    modes = torch.tensor([mode, 0.5], dtype=torch.float64)

    def model(u: torch.Tensor) -> torch.Tensor:
        state, answers = torch.zeros(len(u), 2, dtype=u.dtype), []
        for step in u.unbind(1):
            state = modes.to(u.dtype) * state + step @ gains.to(u.dtype).T
            answers.append(state.sum(-1, keepdim=True))
        return torch.stack(answers, 1)

    memory = memaudit.scan(memaudit.wrap(model, input_size=2, dtype=dtype)).memory
    kernel = np.abs(gains.T.numpy() @ modes.numpy()[:, None] ** np.arange(1, 513)).sum(0)
    for name in ("heaviside", "reversed"):
        assert memory[name].exact
        assert np.abs(memory[name].values - kernel).max() <= 20 * memory[name].floor


@pytest.mark.parametrize("horizon", [511, 512, 513])
def test_the_verdict_does_not_hang_on_the_last_lag(horizon: int) -> None:
    quarter_turn = np.array([1.0, 0.0, -1.0, 0.0] * 300)
    for curve in scan(convolution(quarter_turn), horizon).memory.values():
        assert curve.decay.kind == "persistent"
        assert curve.half_life is None


def test_a_decaying_echo_has_the_half_life_of_its_rate() -> None:
    kernel = (LAGS % 20 == 0) * 0.98 ** (LAGS // 20)
    curve = scan(convolution(kernel), 512).memory["impulse"]
    assert curve.decay.kind == "exponential"
    assert curve.half_life == pytest.approx(np.log(2) / (-np.log(0.98) / 20), rel=0.02)


def test_the_layer_that_never_forgets_stands_for_a_host() -> None:
    class Host(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.short, self.long = (
                nn.RNN(1, 1, nonlinearity="relu"),
                nn.RNN(1, 1, nonlinearity="relu"),
            )
            for layer, weight in ((self.short, 0.995), (self.long, 1.0)):
                for parameter in layer.parameters():
                    nn.init.zeros_(parameter)
                nn.init.constant_(layer.weight_hh_l0, weight)
                nn.init.constant_(layer.weight_ih_l0, 1.0)

        def forward(self, picture: torch.Tensor) -> torch.Tensor:
            raise TypeError("pictures only")

    report = memaudit.scan(Host(), horizon=256, dtype="float64")
    assert report.layers["long"]["impulse"].decay.kind == "persistent"
    assert report.memory["impulse"].decay.kind == "persistent"


def test_a_large_bias_leaves_a_linear_model_linear() -> None:
    past = convolution(0.9**LAGS)
    report = scan(lambda u: past(u) + 1e6)
    assert next(a for a in report.assumptions if a.name == "linear").holds
    assert report.memory["heaviside"].exact


def test_the_rounding_of_many_outputs_at_the_last_step_is_no_memory() -> None:
    """The last row of a product may be rounded otherwise: under |y|_2 all outputs add up."""
    outputs = 1024

    def model(u: torch.Tensor) -> torch.Tensor:
        state, answers = torch.zeros_like(u[:, 0]), []
        for step in u.unbind(1):
            state = 0.8 * state + 0.2 * step
            answers.append(1.5 + torch.tanh(state))
        answers[-1] = torch.nextafter(answers[-1], torch.full_like(state, torch.inf))
        return torch.stack(answers, 1).expand(-1, -1, outputs)

    subject = memaudit.wrap(model, input_size=1, dtype="float32")
    report = memaudit.scan(subject, horizon=256, queries=["heaviside"], normalization="universal")
    assert report.memory["heaviside"].decay.kind == "exponential"
    assert report.memory["heaviside"].horizon is not None


# Each assumption holds where it must and fails where it must.


def leaky(u: torch.Tensor) -> torch.Tensor:
    state, answers = torch.zeros_like(u[:, 0]), []
    for step in u.unbind(1):
        state = 0.8 * state + step
        answers.append(state)
    return torch.stack(answers, 1)


def ramp(u: torch.Tensor) -> torch.Tensor:
    return torch.arange(1.0, u.shape[1] + 1, dtype=u.dtype)[None, :, None]


MODELS = {
    "leaky": leaky,
    "squared": lambda u: u**2,
    "step": lambda u: (u > 0).to(u.dtype),
    "root": lambda u: u.sign() * u.abs().sqrt(),
    "position": lambda u: u * ramp(u),
    "look-ahead": lambda u: u + u.flip(1).cumsum(1).flip(1),
    "biased": lambda u: leaky(u) + 5.0,
}
BROKEN = {
    "leaky": set(),
    "squared": {"linear", "bounded"},
    "step": {"linear", "continuous", "regular", "bounded"},
    "root": {"linear", "bounded"},
    "position": {"time-homogeneous"},
    "look-ahead": {"causal"},
    "biased": set(),
}


@pytest.mark.parametrize("name", MODELS)
def test_exactly_the_broken_assumptions_fail(name: str) -> None:
    subject = memaudit.wrap(MODELS[name], input_size=2)
    found = Assumptions().measure(subject, Setting())
    failed = {item.name for item in found.items if item.holds is False}
    # A sum over the future also depends on where the sequence ends.
    assert failed - {"time-homogeneous"} == BROKEN[name] - {"time-homogeneous"}
    if name != "look-ahead":
        assert ("time-homogeneous" in failed) == ("time-homogeneous" in BROKEN[name])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rounding_breaks_no_assumption(dtype: torch.dtype) -> None:
    subject = memaudit.wrap(leaky, input_size=3, dtype=dtype)
    assert all(item.holds for item in Assumptions().measure(subject, Setting()).items)


def test_pooled_models_leave_time_open() -> None:
    subject = memaudit.wrap(lambda u: leaky(u)[:, -1], input_size=1, pooled=True)
    found = {item.name: item for item in Assumptions().measure(subject, Setting()).items}
    assert found["causal"].holds is None
    assert found["time-homogeneous"].holds is None
    assert found["linear"].holds


def test_every_assumption_says_what_was_compared() -> None:
    for item in Assumptions().measure(memaudit.wrap(leaky, input_size=1), Setting()).items:
        assert item.note
        assert item.residual is not None


# What counts as zero input: zeros, or a real input around which the model is probed.


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


def test_a_gate_that_zero_input_shuts_is_reported(subject):
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


# The prefix of the reversed query: long enough, said, and lengthened once.


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
