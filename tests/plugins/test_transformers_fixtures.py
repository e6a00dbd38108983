"""The reference checkpoints of transformers come out as they were recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.plugins.transformers_zoo import opened

FOLDER = Path(__file__).parents[2].parent / "shared" / "fixtures"
LANGUAGE = (
    *("llama_hf", "mamba1_hf", "mamba1_original", "mamba2_hf"),
    *("rwkv_hf", "recurrentgemma_hf", "xlstm_hf"),
)
NAMES = ("bert_hf", *LANGUAGE)
STEPS = 512
CELLS = {"mamba1_hf": "mamba1", "mamba1_original": "mamba1", "mamba2_hf": "mamba2"}
CELLS |= {"rwkv_hf": "rwkv", "recurrentgemma_hf": "rg-lru", "xlstm_hf": "mlstm"}
CELLS |= {"llama_hf": "", "bert_hf": ""}

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not FOLDER.is_dir(), reason="no reference checkpoints beside the checkout"),
]


def records(name: str) -> dict[str, torch.Tensor]:
    return load_file(FOLDER / name / "small" / "io.safetensors")


def fixture(name: str, dtype: torch.dtype | None = None) -> Any:
    return opened(FOLDER / name / "small", dtype, output="logits")


def close(answer: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    scale = expected.abs().max().item()
    torch.testing.assert_close(answer, expected, rtol=0, atol=tolerance * scale, check_dtype=False)


def probe(kind: str, width: int, steps: int = STEPS) -> torch.Tensor:
    signal = torch.zeros(1, steps, width, dtype=torch.float64)
    if kind == "heaviside":
        signal[:] = 1.0
    if kind == "impulse":
        signal[:, 0] = 1.0
    return signal


@pytest.mark.parametrize("name", NAMES)
def test_every_record_is_reproduced_in_float32(name: str) -> None:
    recorded, subject = records(name), fixture(name, torch.float32)
    answer = subject.respond(recorded["input"])
    assert answer.dtype == torch.float32
    close(answer, recorded["output"], 1e-4)
    for kind in ("heaviside", "impulse", "zero") if name in LANGUAGE else ():
        close(subject.respond(probe(kind, subject.input_size)), recorded[f"{kind}_output"], 1e-4)
    if name in LANGUAGE:
        token = recorded["repeat_token"].expand(1, STEPS)
        close(subject.respond(token), recorded["repeat_output"], 1e-4)
    cells = [item.cell for item in subject.identity.recurrences]
    assert cells == [CELLS[name]] * (2 if CELLS[name] else 0)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "llama_hf"])
def test_output_is_reproduced_in_float64(name: str) -> None:
    recorded = records(name)
    answer = fixture(name).respond(recorded["input"])
    assert answer.dtype == torch.float64
    close(answer, recorded["output64"], 1e-5)


def test_the_llama_differs_from_its_record_by_the_angles_that_the_library_rounds() -> None:
    """A float64 model of the library turns by angles in float32; with those, it agrees as well."""
    recorded = records("llama_hf")
    subject = fixture("llama_hf")
    exact = subject.respond(recorded["input"])
    off = (exact - recorded["output64"]).abs().max() / recorded["output64"].abs().max()
    assert 1e-5 < off < 2e-5  # an angle of 255 is rounded by up to 1.5e-5
    turn = subject.core.rotary_emb
    steps = torch.arange(recorded["input"].shape[1], dtype=torch.float32)
    angles = torch.outer(steps, turn.inv_freq.float()).repeat(1, 2)[None]
    turn.forward = lambda *_, **__: (angles.cos().double(), angles.sin().double())
    close(subject.respond(recorded["input"]), recorded["output64"], 1e-5)


@pytest.mark.parametrize("kind", ["heaviside", "zero"])
def test_probes_of_a_mamba_in_float64_are_those_of_the_original_code(kind: str) -> None:
    """The original keeps A rounded to float32 even there, hence no more digits."""
    subject = fixture("mamba1_original")
    answer = subject.respond(probe(kind, subject.input_size))
    close(answer, records("mamba1_original")[f"{kind}_output64"], 1e-7)


def test_both_formats_of_a_mamba_are_one_model() -> None:
    inputs = records("mamba1_hf")["input"]
    left, right = (fixture(name).respond(inputs) for name in ("mamba1_hf", "mamba1_original"))
    assert torch.equal(left, right)


def test_the_original_mamba_says_what_was_read_off_the_tensors() -> None:
    identity = fixture("mamba1_original").identity
    assert identity.description == "MambaForCausalLM, 2 layers, width 64, 40 tokens"
    assert "config.json states 33 tokens, the embedding has 40 rows" in identity.notes
    assert any("epsilon of its norms, which is not stored, is 1e-5" in n for n in identity.notes)


@pytest.mark.parametrize("word", ["good", "bad", "ha", "yes"])
def test_repeated_words_are_scored_by_the_classifier_as_recorded(word: str) -> None:
    subject = fixture("bert_hf", torch.float32)
    assert subject.pooled
    token = subject.tokens_of(word)
    assert token.shape == (1,)
    expected = records("bert_hf")[f"repeat_{word}_output"]
    for n in (0, 1, 2, 7, 50, 200):
        sequence = subject.framed(token.expand(1, n))
        assert sequence.shape == (1, n + 2)
        close(subject.respond(sequence)[0], expected[n], 1e-4)


@pytest.mark.parametrize("kind", ["heaviside", "impulse", "zero"])
def test_prefixes_of_the_classifier_are_reproduced(kind: str) -> None:
    subject, recorded = opened(FOLDER / "bert_hf" / "small", torch.float32), records("bert_hf")
    assert subject.pooled
    expected = recorded[f"{kind}_prefix_output"]
    for row, length in zip(expected, recorded["prefix_lengths"].tolist(), strict=True):
        answer = subject.respond(probe(kind, 64, length))[0]
        close(answer, row, 1e-4)


def test_recurrent_and_attention_layers_are_distinguished() -> None:
    notes = fixture("recurrentgemma_hf").identity.notes
    assert any(n.startswith("2 recurrent layers, 64.4 %") and "layers.1" in n for n in notes)
    assert any(n.startswith("1 attention layer, 33.5 %") and "layers.2" in n for n in notes)
