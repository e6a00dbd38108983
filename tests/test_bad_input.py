"""Bad input ends in a sentence with a code, never in a traceback or a number."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import memaudit
from memaudit.errors import ArgumentError, SourceError


@pytest.mark.parametrize("horizon", [0, -1, 7, 10**9, 3.5, True, "512"])
def test_an_absurd_horizon_is_refused_before_any_work(horizon) -> None:
    with pytest.raises(ArgumentError, match="horizon"):
        memaudit.scan("no/such/source.pt", horizon=horizon)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"queries": ["heavyside"]}, "heaviside"),
        ({"probes": ["assumption"]}, "assumptions"),
        ({"normalization": "l1"}, "iatn"),
        ({"level": "fast"}, "standard"),
        ({"epsilon": 2.0}, "between 0 and 1"),
        ({"amplitudes": [0.0]}, "positive"),
        ({"amplitudes": []}, "positive"),
        ({"seed": -1}, "seed"),
        ({"device": "tpu"}, "cpu"),
        ({"dtype": "float8"}, "float64"),
        ({"adapter": "rnm"}, "rnn"),
        ({"nonlinearty": "relu"}, "nonlinearity"),
    ],
)
def test_a_wrong_option_names_the_right_ones(options, word) -> None:
    with pytest.raises(memaudit.MemauditError, match=word) as caught:
        memaudit.scan("demo:lstm", **options)
    assert caught.value.exit_code == 2


def test_a_device_that_is_not_there_gets_a_sentence() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    with pytest.raises(ArgumentError, match="is not there; this machine has: cpu"):
        memaudit.scan("demo:lstm", device="cuda")


@pytest.mark.parametrize(
    ("function", "word"),
    [
        (lambda u: u[:, 0], "pooled=True"),
        (lambda u: u[:, :-1], "not by"),
        (lambda u: u.sum(), "not by"),
        (lambda u: None, "NoneType"),
        (lambda u: u.to(torch.complex128), "complex"),
        (lambda u: u > 0, "bool"),
        (lambda u: u[:1], "not by"),
    ],
)
def test_a_callable_with_the_wrong_shape_is_refused(function, word) -> None:
    with pytest.raises(SourceError, match=word):
        memaudit.scan(memaudit.wrap(function, input_size=2))


def test_a_bare_function_is_refused_with_the_hint_to_use_wrap() -> None:
    with pytest.raises(ArgumentError, match=r"memaudit\.wrap"):
        memaudit.scan(lambda u: u)


def test_nan_weights_are_named(tmp_path) -> None:
    layer = nn.LSTM(2, 4)
    layer.weight_hh_l0.data[0, 0] = float("nan")
    torch.save(layer.state_dict(), tmp_path / "model.pt")
    with pytest.raises(SourceError, match=r"E_NONFINITE.*weight_hh_l0"):
        memaudit.scan(tmp_path / "model.pt")
    with pytest.raises(SourceError, match="E_NONFINITE"):
        memaudit.scan(layer)


def test_an_exploding_model_is_reported_not_crashed() -> None:
    def model(u: torch.Tensor) -> torch.Tensor:
        state, answers = torch.zeros_like(u[:, 0]), []
        for step in u.unbind(1):
            state = 20 * state + step
            answers.append(state)
        return torch.stack(answers, 1)

    report = memaudit.scan(memaudit.wrap(model, input_size=1))
    curve = report.memory["heaviside"]
    assert curve.status.name == "DIVERGED"
    assert curve.decay.kind == "growing"
    assert 0 < len(curve.values) < 512
    assert {"MA102", "MA109"} <= {finding.code for finding in report.findings}
    assert memaudit.Report.from_dict(report.to_dict()) == report


def test_a_model_that_is_never_finite_is_reported() -> None:
    subject = memaudit.wrap(lambda u: u * float("nan"), input_size=1)
    report = memaudit.scan(subject, horizon=32)
    assert report.memory["impulse"].status.name == "DIVERGED"
    assert len(report.memory["impulse"].values) == 0
    assert memaudit.Report.from_dict(report.to_dict()) == report


def test_a_model_that_ignores_its_input_is_reported() -> None:
    report = memaudit.scan(memaudit.wrap(lambda u: 0 * u + 2, input_size=1), horizon=64)
    assert "MA108" in {finding.code for finding in report.findings}


def test_noise_in_the_model_is_found() -> None:
    generator = torch.Generator()

    def model(u: torch.Tensor) -> torch.Tensor:
        noise = torch.rand(u.shape, generator=generator, dtype=u.dtype)
        return u.cumsum(1) * 0.5 + noise

    report = memaudit.scan(memaudit.wrap(model, input_size=1), horizon=64)
    assert "MA303" in {finding.code for finding in report.findings}
    assert report.memory["impulse"].floor > 0.01


def test_a_state_dict_without_recurrence_lists_what_it_has(tmp_path) -> None:
    torch.save(nn.Linear(3, 3).state_dict(), tmp_path / "model.pt")
    with pytest.raises(SourceError, match="weight, bias"):
        memaudit.scan(tmp_path / "model.pt")


def test_a_missing_file_says_how_to_name_the_hub() -> None:
    with pytest.raises(SourceError, match="org/name"):
        memaudit.scan("nowhere/model.pt")
