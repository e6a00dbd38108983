"""The text that comes with the package is plain prose that repeats nothing."""

from __future__ import annotations

import re

from memaudit.data import sample_text


def test_the_text_is_plain_ascii_of_a_few_thousand_words() -> None:
    text = sample_text()
    assert text.isascii()
    assert 20_000 < len(text) < 30_000
    assert set(text) <= set(map(chr, range(32, 127))) | {"\n"}


def test_blank_lines_part_its_paragraphs_and_nothing_else_breaks_a_line() -> None:
    paragraphs = sample_text().removesuffix("\n").split("\n\n")
    assert len(paragraphs) > 30
    assert all(len(paragraph) > 200 and "\n" not in paragraph for paragraph in paragraphs)


def test_no_sentence_and_no_long_phrase_comes_twice() -> None:
    """A repeated phrase could be recalled instead of read: the text must not invite that."""
    words = re.findall(r"[a-z']+", sample_text().lower())
    phrases = [tuple(words[i : i + 8]) for i in range(len(words) - 7)]
    assert len(set(phrases)) == len(phrases)
