"""Queries in token space against a filter over letters, whose answers are known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import memaudit
from memaudit.errors import ArgumentError
from memaudit.interfaces import Status
from memaudit.testing.laws import DECAY, LETTERS, LetterFilter

TEXT = "the cat sat on the mat and looked at the grey sea until the evening came. " * 40


def letter(character: str) -> float:
    return 1 + LETTERS.index(character) / 8


class Framed(LetterFilter):
    """Two letters in front of the text and one behind it, as tokenizers do."""

    def framed(self, tokens: torch.Tensor) -> torch.Tensor:
        front = torch.tensor([[3, 4]]).expand(len(tokens), -1)
        return torch.cat([front, tokens, front[:, :1]], dim=1)


class Bounded(Framed):
    """Takes 40 steps and not one more."""

    longest = 40

    def respond(self, inputs: torch.Tensor) -> torch.Tensor:
        assert inputs.shape[1] <= self.longest
        return super().respond(inputs)


class LooksAhead(LetterFilter):
    """The filter run backwards: the answer at the last letter knows that letter alone."""

    def respond(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().respond(inputs.flip(1)).flip(1)


def scanned(subject, query, **options):
    options = {"horizon": 64, "probes": [], "text": TEXT, **options}
    return memaudit.scan(subject, queries=[query], **options).memory[query]


@pytest.mark.parametrize("pooled", [False, True])
def test_one_more_repetition_of_a_letter_adds_its_power(pooled):
    curve = scanned(LetterFilter(pooled=pooled), "repeat", words=("q",))
    expected = letter("q") * DECAY ** curve.lags.astype(float)
    assert curve.lags[0] == 1
    assert np.allclose(curve.values, expected, rtol=1e-9, atol=1e-14)


def test_the_supremum_is_over_the_words_and_they_are_named():
    curve = scanned(LetterFilter(), "repeat", words="a,z,m")
    assert curve.probes == 3
    assert curve.trials == ("token 0", "token 25", "token 12")
    assert curve.values[0] == pytest.approx(letter("z") * DECAY)


def test_a_word_of_several_tokens_is_repeated_as_a_whole():
    curve = scanned(LetterFilter(), "repeat", words=("ha",))
    step = letter("a") + DECAY * letter("h")
    expected = step * DECAY ** (2 * curve.lags.astype(float))
    assert np.allclose(curve.values, expected, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("pooled", [False, True])
def test_the_frame_of_a_tokenizer_is_fed_and_not_read(pooled):
    curve = scanned(Framed(pooled=pooled), "repeat", words=("q",))
    # y(n) = d^n f + q (1 - d^n) / (1 - d) with f the answer to the frame in front; pooled models
    # answer behind one more letter, which costs a factor d.
    front = 1 + 4 / 8 + DECAY * (1 + 3 / 8)
    change = abs(letter("q") - (1 - DECAY) * front) * DECAY ** curve.lags.astype(float)
    assert np.allclose(curve.values, change * (DECAY if pooled else 1.0), rtol=1e-9, atol=1e-13)


def test_a_model_that_looks_ahead_is_asked_once_for_every_number_of_repetitions():
    curve = scanned(LooksAhead(), "repeat", words=("q",))
    assert curve.decay.kind == "memoryless"
    assert len(curve.lags) < 63


def test_words_are_the_commonest_of_the_text_unless_they_are_given():
    heard: list[int] = []

    class Listening(LetterFilter):
        def respond(self, inputs: torch.Tensor) -> torch.Tensor:
            heard.extend(inputs[:, 0].tolist() if inputs.ndim == 2 else [])
            return super().respond(inputs)

    scanned(Listening(), "repeat", text="aab" * 20, level="quick")
    assert {LETTERS[k] for k in heard} == {"a", "b"}


@pytest.mark.parametrize("pooled", [False, True])
def test_a_changed_letter_leaves_its_difference_times_the_power(pooled):
    text = "ab" * 200  # a letter of two can only be replaced by the other one
    curve = scanned(LetterFilter(pooled=pooled), "context", text=text)
    expected = DECAY ** curve.lags.astype(float)
    assert curve.lags[0] == 0
    assert np.allclose(curve.values / curve.values[0], expected, rtol=1e-6, atol=1e-13)
    assert curve.decay.kind == "exponential"


def test_a_text_that_is_shorter_than_the_window_gives_a_shorter_curve():
    curve = scanned(LetterFilter(), "context", text="abc" * 20)
    assert len(curve.lags) == 8  # the passages are a quarter of the text, half of each is a lead
    assert scanned(LetterFilter(), "context", text="abababab").status is Status.TOO_SHORT


def test_no_query_leaves_the_positions_that_the_model_has():
    for query in ("repeat", "context", "heaviside", "impulse", "reversed"):
        curve = scanned(Bounded(), query)
        assert len(curve.lags) >= 16


def test_without_a_tokenizer_random_tokens_are_repeated_and_text_is_declined():
    class Dumb(LetterFilter):
        def tokens_of(self, text: str) -> None:
            return None

    assert scanned(Dumb(), "repeat").decay.kind == "exponential"
    assert scanned(Dumb(), "repeat", words=("q",)).status is Status.NO_TOKENIZER
    assert scanned(Dumb(), "context").status is Status.NO_TOKENIZER


def test_what_the_tokenizer_does_not_know_is_said():
    class Ignorant(LetterFilter):
        unknown = LETTERS.index(" ")

    with pytest.raises(ArgumentError, match="does not know the word '123'"):
        scanned(Ignorant(), "repeat", words=("abc", "123"))
    assert scanned(Ignorant(), "context", text="123456789 " * 40).status is Status.UNKNOWN_TEXT
    assert scanned(Ignorant(), "context", text="abc " * 40).status is not Status.UNKNOWN_TEXT


def test_the_text_of_a_file_is_read_and_named_by_its_digest(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text(TEXT, encoding="utf-8")
    report = memaudit.scan(LetterFilter(), queries=["context"], probes=[], horizon=64, text=file)
    again = memaudit.scan(LetterFilter(), queries=["context"], probes=[], horizon=64, text=TEXT)
    assert report.memory == again.memory
    assert report.settings["text"] == again.settings["text"]
    assert f"{len(TEXT)} characters, sha256 " in report.settings["text"]


@pytest.mark.parametrize("options", [{"text": " "}, {"words": "a,,b"}, {"words": 3}, {"words": []}])
def test_a_text_or_words_that_are_none_are_refused_before_work_starts(options, tmp_path):
    with pytest.raises(ArgumentError):
        scanned(LetterFilter(), "repeat", **options)
    with pytest.raises(ArgumentError, match="cannot be read"):
        scanned(LetterFilter(), "repeat", text=tmp_path / "missing.txt")
