"""Data that comes with the package: a text to read."""

from __future__ import annotations

from importlib.resources import files


def sample_text() -> str:
    """An English text of a few thousand words, for queries in token space."""
    return files(__name__).joinpath("sample.txt").read_text(encoding="utf-8")
