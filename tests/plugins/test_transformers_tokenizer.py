"""Tokenizers beside a model are used when they fit, and their absence is said."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.plugins.transformers_zoo import WORDS, ids, make, opened, saved, write_tokenizer

TEXT = "w7 w9 nobody w4 w5"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return saved(make("bert bare"), tmp_path)


def said(subject: object) -> str:
    return " | ".join(n for n in subject.identity.notes if "tokenizer" in n)  # type: ignore


def test_a_text_becomes_ids_without_a_frame_padding_or_cut(folder: Path) -> None:
    subject = opened(write_tokenizer(folder))
    tokens = subject.tokens_of(TEXT)
    assert tokens is not None
    assert tokens.tolist() == [7, 9, 1, 4, 5]
    assert tokens.dtype == torch.int64
    assert subject.word_of(7) == "w7"
    assert said(subject) == ""


def test_the_frame_is_put_around_every_row(folder: Path) -> None:
    subject = opened(write_tokenizer(folder))
    framed = subject.framed(torch.tensor([[7, 7], [9, 9]]))
    assert framed.tolist() == [[2, 7, 7, 3], [2, 9, 9, 3]]
    assert subject.framed(torch.zeros(1, 0, dtype=torch.int64)).tolist() == [[2, 3]]


def test_without_a_tokenizer_the_model_still_runs(folder: Path) -> None:
    subject = opened(folder)
    assert subject.tokens_of(TEXT) is None
    assert subject.framed(ids(2, 3)).shape == (2, 3)
    assert subject.word_of(7) == "token 7"
    assert said(subject) == "there is no tokenizer beside the model: it is fed embeddings"


def test_a_tokenizer_of_another_model_is_not_used(folder: Path) -> None:
    subject = opened(write_tokenizer(folder, words=WORDS + 1))
    assert subject.tokens_of(TEXT) is None
    assert (
        said(subject)
        == f"the tokenizer is not used: it has {WORDS + 1} ids, the embedding has {WORDS} rows"
    )


def test_a_tokenizer_that_knows_hardly_a_word_is_not_used(folder: Path) -> None:
    subject = opened(write_tokenizer(folder, words=10))
    assert subject.tokens_of(TEXT) is None
    assert (
        said(subject)
        == f"the tokenizer is not used: it knows 10 words, the embedding has {WORDS} rows"
    )


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b"\xff\xfe", b'{"model": {"type": "Nobody"}}', b"[" * 100_000]
)
def test_a_damaged_tokenizer_is_said_and_not_used(folder: Path, content: bytes) -> None:
    (folder / "tokenizer.json").write_bytes(content)
    subject = opened(folder)
    assert subject.tokens_of(TEXT) is None
    assert said(subject).startswith("the tokenizer was not read: ")
    assert subject.respond(ids(1, 4)).shape == (1, 4, 32)


def test_a_link_that_leads_out_of_the_folder_is_not_followed(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = write_tokenizer(tmp_path_factory.mktemp("elsewhere")) / "tokenizer.json"
    (folder / "tokenizer.json").symlink_to(elsewhere)
    subject = opened(folder)
    assert subject.tokens_of(TEXT) is None
    assert "leads outside the folder" in said(subject)


def test_a_link_beside_the_older_files_is_not_followed(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "secret.json"
    elsewhere.write_text("{}")
    (folder / "vocab.txt").write_text("a\nb")
    (folder / "added_tokens.json").symlink_to(elsewhere)
    assert "leads outside the folder" in said(opened(folder))


def test_the_older_files_of_a_tokenizer_are_read(folder: Path) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"w{i}" for i in range(4, WORDS - 1)), "[MASK]"]
    (folder / "vocab.txt").write_text("\n".join(words))
    subject = opened(folder)
    tokens = subject.tokens_of(TEXT)
    assert tokens is not None
    assert tokens.tolist() == [7, 9, 1, 4, 5]
    assert subject.framed(tokens[None]).tolist() == [[2, 7, 9, 1, 4, 5, 3]]


def test_code_of_a_tokenizer_is_not_run(folder: Path) -> None:
    canary = folder / "canary"
    (folder / "tokenization_own.py").write_text(f"open({str(canary)!r}, 'w').close()")
    (folder / "vocab.txt").write_text("a\nb")
    (folder / "tokenizer_config.json").write_text(
        '{"auto_map": {"AutoTokenizer": ["tokenization_own.Own", null]}, "tokenizer_class": "Own"}'
    )
    opened(folder)
    assert not canary.exists()
