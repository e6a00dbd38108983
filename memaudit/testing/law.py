"""Stating a law: it holds, or an AssertionError says in a sentence what is wrong."""

from __future__ import annotations

import json
from typing import Any

import torch

from memaudit.numerics.signals import seeded
from memaudit.records import plain


def must(holds: bool, sentence: str) -> None:
    """Raise AssertionError with the sentence unless it holds; -O does not switch it off."""
    if not holds:
        raise AssertionError(sentence)


def check_words(plugin: Any, *names: str) -> None:
    """The attributes of that name are texts with something in them."""
    for name in names:
        words = getattr(plugin, name, None)
        must(isinstance(words, str) and bool(words.strip()), f"{name} is {words!r}, not a text")


def check_plain(value: Any, what: str) -> None:
    """The value survives strict JSON unchanged: plain types, no NaN, no infinity."""
    try:
        text = json.dumps(plain(value), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise AssertionError(f"{what} cannot stand in a JSON report: {error}") from error
    must(json.loads(text) == plain(value), f"{what} changes on its way through JSON")


def draw(rows: int, width: int, *, seed: int = 0) -> torch.Tensor:
    """Gaussian rows in float64, the same for the same seed."""
    return torch.randn(rows, width, generator=seeded(seed), dtype=torch.float64)
