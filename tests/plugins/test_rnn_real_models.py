"""Trained recurrent models from registry packages answer as their own code does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from memaudit.cli import main
from memaudit.interfaces import AbstractSubject, Request
from memaudit.loading.source import parse_source
from memaudit.report import Report
from memaudit_rnn import RnnAdapter

pytestmark = pytest.mark.network

Fetch = Callable[[str, str], Path]


def opened(path: Path, **options: object) -> AbstractSubject:
    return RnnAdapter().load(
        parse_source(path), Request(torch.device("cpu"), None, None, options=options)
    )


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def ids(vocabulary: int) -> torch.Tensor:
    return torch.randint(vocabulary, (2, 40), generator=torch.Generator().manual_seed(0))


def close(answer: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(answer, expected, rtol=0, atol=1e-10)


def test_silero_is_a_host_of_one_lstm_cell(fetch: Fetch) -> None:
    path = fetch("silero-vad==6.2.3", "silero_vad_16k.safetensors")
    host = opened(path)
    assert list(host.parts()) == ["lstm_cell"]
    assert host.input_size == 128
    assert 0.4 < host.identity.coverage < 0.45
    prefix = "lstm_cell."
    weights = {k.removeprefix(prefix): v for k, v in load_file(path).items() if prefix in k}
    cell = nn.LSTMCell(128, 128).double()
    cell.load_state_dict(weights)
    inputs, state, steps = noise(2, 30, 128), None, []
    with torch.no_grad():
        for step in inputs.unbind(1):
            state = cell(step, state)
            steps.append(state[0])
    close(host.respond(inputs), torch.stack(steps, 1))


def test_resemblyzer_is_three_lstm_layers_and_a_head(fetch: Fetch) -> None:
    path = fetch("resemblyzer==0.1.4", "pretrained.pt")
    weights = torch.load(path, map_location="cpu", weights_only=True)["model_state"]
    model = nn.ModuleDict({"lstm": nn.LSTM(40, 256, 3, batch_first=True)})
    model["linear"] = nn.Linear(256, 256)
    model.load_state_dict(weights, strict=False)
    inputs = noise(2, 50, 40)
    with torch.no_grad():
        _, (hidden, _) = model.double()["lstm"](inputs)
        expected = model["linear"](hidden[-1])
    subject = opened(path, pool="final")
    assert subject.pooled
    close(subject.respond(inputs), expected)


def test_the_greek_language_model_gives_its_hidden_state_or_its_logits(fetch: Fetch) -> None:
    path = fetch("gr-nlp-toolkit==0.1.5", "LSTM_LM_50000_char_120_32_512.pt")
    model = nn.ModuleDict({"embed": nn.Embedding(120, 32)})
    model["lstm"] = nn.LSTM(32, 512, batch_first=True)
    model["dense"] = nn.Linear(512, 120)
    model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    tokens = ids(120)
    with torch.no_grad():
        states, _ = model.double()["lstm"](model["embed"](tokens))
        logits = model["dense"](states)
    subject = opened(path)
    close(subject.respond(tokens), states)
    assert "logits" in subject.identity.assumed["output"]
    close(opened(path, output="logits").respond(tokens), logits)


def test_the_grapheme_model_is_a_host_of_two_grus(fetch: Fetch) -> None:
    path = fetch("g2p-en==2.1.0", "checkpoint20.npz")
    host = opened(path)
    assert list(host.parts()) == ["enc", "dec"]
    assert host.input_size is None
    arrays = {name: value.astype(np.float64) for name, value in np.load(path).items()}
    inputs = noise(2, 20, 256)
    for name, part in host.parts().items():
        gate = [arrays[f"{name}_{key}"] for key in ("w_ih", "w_hh", "b_ih", "b_hh")]
        close(part.respond(inputs), torch.from_numpy(gru(inputs.numpy(), *gate)))


def gru(
    x: np.ndarray, w_ih: np.ndarray, w_hh: np.ndarray, b_ih: np.ndarray, b_hh: np.ndarray
) -> np.ndarray:
    """Gates in the order reset, update, new; h' = (1 - z)·n + z·h."""
    h = np.zeros((x.shape[0], w_hh.shape[1]))
    states = []
    for t in range(x.shape[1]):
        from_input = np.split(x[:, t] @ w_ih.T + b_ih, 3, axis=1)
        from_state = np.split(h @ w_hh.T + b_hh, 3, axis=1)
        r = 1 / (1 + np.exp(-(from_input[0] + from_state[0])))
        z = 1 / (1 + np.exp(-(from_input[1] + from_state[1])))
        n = np.tanh(from_input[2] + r * from_state[2])
        h = (1 - z) * n + z * h
        states.append(h)
    return np.stack(states, axis=1)


def test_the_uzbek_tagger_is_a_bidirectional_gru_with_embedding_and_head(fetch: Fetch) -> None:
    path = fetch("uzmorph-bigru==0.1.1", "morph_bigru.pth")
    model = nn.ModuleDict({"char_embeddings": nn.Embedding(49, 64)})
    model["gru"] = nn.GRU(64, 64, 2, bidirectional=True, batch_first=True)
    model["hidden2tag"] = nn.Linear(128, 746)
    model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    tokens = ids(49)
    with torch.no_grad():
        states, _ = model.double()["gru"](model["char_embeddings"](tokens))
        expected = model["hidden2tag"](states)
    subject = opened(path)
    assert subject.identity.coverage == 1.0
    close(subject.respond(tokens), expected)


@pytest.mark.parametrize(
    ("requirement", "inside", "parts"),
    [
        ("silero-vad==6.2.3", "silero_vad_16k.safetensors", ["lstm_cell"]),
        ("resemblyzer==0.1.4", "pretrained.pt", []),
        ("gr-nlp-toolkit==0.1.5", "LSTM_LM_50000_char_120_32_512.pt", []),
        ("g2p-en==2.1.0", "checkpoint20.npz", ["enc", "dec"]),
        ("uzmorph-bigru==0.1.1", "morph_bigru.pth", []),
    ],
)
def test_the_command_line_audits_the_file_alone(
    fetch: Fetch, tmp_path: Path, requirement: str, inside: str, parts: list[str]
) -> None:
    source = tmp_path / inside  # away from whatever lies beside it in the package
    source.write_bytes(fetch(requirement, inside).read_bytes())
    saved = tmp_path / "report.json"
    words = ["scan", str(source), "--quick", "--horizon", "64", "--json", str(saved)]
    assert main(words) == 0
    report = Report.load(saved)
    assert list(report.layers) == parts
    assert set(report.memory) == {"heaviside", "impulse", "reversed"}
    assert all(len(curve.values) == 64 for curve in report.memory.values())
