"""Modules and functions in memory: whole models, hosts, wrapped callables."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

import memaudit
from memaudit.numerics.signals import seeded


def random_cell(kind: str, seed: int, layers: int = 1) -> nn.Module:
    """A recurrent layer with torch's default initialisation, from a generator of its own."""
    layer = getattr(nn, kind)(2, 24, layers, batch_first=True).double()
    generator = seeded(seed)
    for parameter in layer.parameters():
        bound = 24**-0.5
        uniform = torch.rand(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.data = (2 * uniform - 1) * bound
    return layer


class Regressor(nn.Module):
    def __init__(self, *, batch_first: bool = True) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 8, batch_first=batch_first)
        self.head = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0])


class ImageReader(nn.Module):
    """A host: convolutions over pictures, an LSTM inside."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3)
        self.lstm = nn.LSTM(6, 10, batch_first=True)
        self.gru = nn.GRU(10, 5, batch_first=True)

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        rows = self.conv(picture).mean(-1).transpose(1, 2)
        return self.gru(self.lstm(rows)[0])[0][:, -1]


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_queries_agree_in_slope_on_random_recurrent_layers(kind: str, seed: int) -> None:
    """At small amplitude, where all three see the same linearisation at rest.

    A step and an impulse weigh the modes differently, and a window of 60 lags before the floor
    does not separate near ones: GRU 3 has heaviside 0.38 beside 0.43.
    """
    layer = random_cell(kind, seed)
    memory = memaudit.scan(layer, horizon=128, amplitudes=[2.0**-6]).memory
    rates = {name: curve.decay.rate for name, curve in memory.items()}
    assert all(curve.decay.kind == "exponential" for curve in memory.values()), rates
    slopes = [rate for rate in rates.values() if rate is not None]
    assert max(slopes) / min(slopes) < 1.25, rates


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_the_rate_is_that_of_the_slowest_mode_at_rest(kind: str) -> None:
    """A second way to the same number: the Jacobian of one step where the layer settles."""
    layer = random_cell(kind, 5)
    answers, state = layer(torch.zeros(1, 2000, 2, dtype=torch.float64))
    del answers
    pieces = state if isinstance(state, tuple) else (state,)
    flat = torch.cat([piece.reshape(-1) for piece in pieces]).detach()

    def step(vector: torch.Tensor) -> torch.Tensor:
        parts = [part.reshape(1, 1, -1) for part in vector.chunk(len(pieces))]
        given = (parts[0], parts[1]) if len(parts) == 2 else parts[0]
        after = layer(torch.zeros(1, 1, 2, dtype=torch.float64), given)[1]
        after = after if isinstance(after, tuple) else (after,)
        return torch.cat([piece.reshape(-1) for piece in after])

    jacobian = torch.autograd.functional.jacobian(step, flat)
    assert isinstance(jacobian, torch.Tensor)
    slowest = float(-torch.linalg.eigvals(jacobian).abs().max().log())
    decay = memaudit.scan(layer, horizon=128, amplitudes=[2.0**-6]).memory["impulse"].decay
    assert decay.rate == pytest.approx(slowest, rel=0.1)


def test_a_whole_model_is_found_by_trial_and_says_so() -> None:
    report = memaudit.scan(Regressor(), horizon=64)
    assert not report.layers
    assert report.subject.assumed["input_size"].startswith("3 ")
    assert report.memory["impulse"].decay.kind != "memoryless"


def test_the_time_axis_is_not_mistaken_for_the_batch() -> None:
    """A time-first model passes by shape; it is audited layer by layer instead."""
    report = memaudit.scan(Regressor(batch_first=False), horizon=64)
    assert list(report.layers) == ["lstm"]


def test_a_host_is_audited_layer_by_layer() -> None:
    report = memaudit.scan(ImageReader(), horizon=64)
    assert sorted(report.layers) == ["gru", "lstm"]
    assert 0 < report.subject.coverage < 1
    assert {assumption.where for assumption in report.assumptions} == {"gru", "lstm"}
    assert any(finding.code == "MA002" for finding in report.findings)
    assert set(report.memory) == {"driven", "heaviside", "impulse", "reversed"}


@pytest.mark.parametrize("factory", [Regressor, ImageReader, lambda: nn.GRU(2, 4)])
def test_a_scan_leaves_the_module_as_it_was(factory) -> None:
    module = factory().train()
    before = copy.deepcopy(module.state_dict())
    memaudit.scan(module, horizon=32)
    assert all(part.training for part in module.modules())
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, before[name])
        assert tensor.dtype == before[name].dtype
    assert all(parameter.grad is None for parameter in module.parameters())


def test_bare_layers_respect_time_first() -> None:
    """nn.LSTM defaults to (T,B,D); the audit feeds (B,T,D) and must not swap them."""
    first = nn.LSTM(2, 6).double()
    second = nn.LSTM(2, 6, batch_first=True).double()
    second.load_state_dict(first.state_dict())
    one, two = (memaudit.scan(layer, horizon=32) for layer in (first, second))
    assert np.array_equal(one.memory["impulse"].values, two.memory["impulse"].values)


def test_dtype_follows_the_weights_and_can_be_changed() -> None:
    module = Regressor()
    assert memaudit.scan(module, horizon=16).subject.dtype == "float32"
    assert memaudit.scan(module, horizon=16, dtype="float64").subject.dtype == "float64"
    assert next(module.parameters()).dtype == torch.float32


def test_a_wrapped_function_is_float64() -> None:
    assert memaudit.wrap(lambda u: u, input_size=2).dtype == torch.float64
    assert memaudit.wrap(lambda u: u, input_size=2, dtype=torch.float32).dtype == torch.float32
    assert memaudit.wrap(nn.Linear(2, 2), input_size=2).dtype == torch.float32


def test_a_pooled_model_is_read_from_its_prefixes() -> None:
    """Pooling the last step must give the same memory as reading every step."""
    lam = 0.9

    def every_step(u: torch.Tensor) -> torch.Tensor:
        state, answers = torch.zeros_like(u[:, 0]), []
        for step in u.unbind(1):
            state = lam * state + step
            answers.append(state)
        return torch.stack(answers, 1)

    pooled = memaudit.wrap(lambda u: every_step(u)[:, -1], input_size=1, pooled=True)
    report = memaudit.scan(pooled, horizon=200)
    for name, shift in (("heaviside", 1), ("impulse", 0), ("reversed", 1)):
        curve = report.memory[name]
        assert curve.lags[-1] == 199
        assert np.abs(curve.values - lam ** (curve.lags + shift)).max() < 1e-12
        assert curve.decay.kind == "exponential"
        assert curve.decay.rate == pytest.approx(-np.log(lam), rel=1e-3)


@pytest.mark.parametrize("normalization", ["iatn", "stablessm", "universal", "script"])
def test_normalizations_are_named_and_follow_their_formula(normalization: str) -> None:
    lam, width = 0.8, 2

    def model(u: torch.Tensor) -> torch.Tensor:
        state, answers = torch.zeros_like(u[:, 0]), []
        for step in u.unbind(1):
            state = lam * state + step
            answers.append(state)
        return torch.stack(answers, 1)

    subject = memaudit.wrap(model, input_size=width)
    curve = memaudit.scan(subject, horizon=64, normalization=normalization, seed=4).memory[
        "impulse"
    ]
    x = torch.randn(1, width, dtype=torch.float64, generator=seeded(4))
    factor = {
        "iatn": 1.0,
        "stablessm": 1.0,  # the supremum of a/(a+1) over all amplitudes a
        "universal": 2**0.5,
        "script": float(x.norm()),
    }[normalization]
    assert curve.normalization == normalization
    assert np.abs(curve.values - factor * lam**curve.lags).max() < 1e-12


def test_the_supremum_over_amplitudes_is_a_supremum() -> None:
    """y = tanh(4u) delayed by one: small inputs have gain 4, large ones saturate."""

    def model(u: torch.Tensor) -> torch.Tensor:
        return torch.tanh(4 * nn.functional.pad(u, (0, 0, 1, 0))[:, :-1])

    curve = memaudit.scan(memaudit.wrap(model, input_size=1), horizon=32).memory["impulse"]
    gain = np.tanh(4 * 2.0**-6) / 2.0**-6
    assert curve.values[1] == pytest.approx(gain, rel=1e-12)
    assert curve.median[1] < curve.values[1]
    assert not curve.exact
    assert curve.decay.kind == "finite"


def test_the_same_seed_gives_the_same_numbers() -> None:
    layer = random_cell("GRU", 1)
    one, two = (memaudit.scan(layer, horizon=64, seed=7).to_dict() for _ in range(2))
    for volatile in ("timing", "environment"):
        del one[volatile], two[volatile]
    assert one == two
