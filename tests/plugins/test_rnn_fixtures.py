"""The reference checkpoints of torch's recurrent layers come out as they were recorded."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from memaudit.interfaces import Request
from memaudit.loading.source import parse_source
from memaudit_rnn import RnnAdapter
from memaudit_rnn.subject import RnnSubject

FOLDER = Path(__file__).parents[2].parent / "shared" / "fixtures" / "torch_rnn"
NAMES = ("lstm_uni", "lstm_bi", "gru_uni", "gru_bi", "rnn_uni")
REGRESSORS = ("lstm_uni", "gru_uni", "gru_bi", "rnn_uni")
STEPS = 512

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not FOLDER.is_dir(), reason="no reference checkpoints beside the checkout"),
]


def opened(path: Path, dtype: torch.dtype | None = None) -> RnnSubject:
    subject = RnnAdapter().load(
        parse_source(path), Request(torch.device("cpu"), dtype, None, options={})
    )
    assert isinstance(subject, RnnSubject)
    return subject


def records(name: str) -> dict[str, torch.Tensor]:
    return load_file(FOLDER / name / "io.safetensors")


def probe(kind: str, width: int, steps: int = STEPS) -> torch.Tensor:
    signal = torch.zeros(1, steps, width, dtype=torch.float64)
    if kind == "heaviside":
        signal[:] = 1.0
    if kind == "impulse":
        signal[:, 0] = 1.0
    return signal


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("file", ["", "model.pt"])
def test_output_is_reproduced_in_float64(name: str, file: str) -> None:
    recorded = records(name)
    answer = opened(FOLDER / name / file).respond(recorded["input"])
    assert answer.dtype == torch.float64
    torch.testing.assert_close(answer, recorded["output64"], rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_output_is_reproduced_in_float32(name: str) -> None:
    recorded = records(name)
    answer = opened(FOLDER / name, torch.float32).respond(recorded["input"])
    assert answer.dtype == torch.float32
    scale = recorded["output"].abs().max().item()
    torch.testing.assert_close(answer, recorded["output"], rtol=0, atol=1e-4 * scale)


@pytest.mark.parametrize("name", REGRESSORS)
@pytest.mark.parametrize("kind", ["heaviside", "impulse", "zero"])
def test_probes_of_regressors_are_reproduced(name: str, kind: str) -> None:
    subject = opened(FOLDER / name)
    assert subject.input_size is not None
    answer = subject.respond(probe(kind, subject.input_size))
    torch.testing.assert_close(answer, records(name)[f"{kind}_output64"], rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", ["heaviside", "impulse", "zero", "repeat"])
def test_prefixes_of_the_pooled_classifier_are_reproduced(kind: str) -> None:
    subject, recorded = opened(FOLDER / "lstm_bi"), records("lstm_bi")
    assert subject.pooled
    assert subject.input_size == 16
    expected = recorded[f"{kind}_prefix_output"]
    scale = expected.abs().max().item()
    for row, length in zip(expected, recorded["prefix_lengths"].tolist(), strict=True):
        inputs = probe(kind, 16, length)
        if kind == "repeat":
            inputs = recorded["repeat_token"].expand(1, length)
        answer = subject.respond(inputs)[0].float()
        torch.testing.assert_close(answer, row, rtol=0, atol=1e-4 * scale)


def test_the_classifier_is_described_and_its_pooling_is_an_assumption() -> None:
    identity = opened(FOLDER / "lstm_bi").identity
    expected = "2-layer bidirectional LSTM, 16 → 32, embedding of 24 tokens, head to 4"
    assert identity.description == expected
    assert identity.coverage == 1.0
    assert identity.parameters == 38532
    assert [layer.layer for layer in identity.recurrences] == ["lstm.l0", "lstm.l1"]
    assert {layer.directions for layer in identity.recurrences} == {2}
    assert "4 classes" in identity.assumed["pool"]


def test_a_vanilla_rnn_says_that_tanh_was_assumed() -> None:
    assert (
        opened(FOLDER / "rnn_uni").identity.assumed["nonlinearity"].startswith("tanh (not stored")
    )
