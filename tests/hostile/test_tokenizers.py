"""Settings of a tokenizer that name files elsewhere."""

from __future__ import annotations

import json

from memaudit_transformers.tokenizer import open_tokenizer

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{i}" for i in range(27))]


def test_no_setting_makes_a_tokenizer_of_another_file(tmp_path):
    for key in ("vocab", "vocab_file", "tokenizer_file", "gguf_file"):
        (tmp_path / key).mkdir()
        its_own_file_is_read(tmp_path / key, key)


def its_own_file_is_read(tmp_path, key):
    secret = tmp_path / "secret.txt"
    secret.write_text("\n".join(WORDS).replace("word", "secret"))
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    settings = {"tokenizer_class": "BertTokenizer", key: str(secret), "unk_token": "[UNK]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "chat_template.jinja").symlink_to(secret)
    tokens, notes = open_tokenizer(folder, len(WORDS))
    assert notes == ()
    assert tokens is not None
    assert tokens.word(20) == WORDS[20]


def test_settings_that_are_no_object_are_named(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
    (tmp_path / "tokenizer_config.json").write_text("[1]")
    tokens, notes = open_tokenizer(tmp_path, len(WORDS))
    assert tokens is None
    assert notes == (
        "the tokenizer was not read: the settings of the tokenizer are no JSON object",
    )
