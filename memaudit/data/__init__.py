"""Data that comes with the package: a text to read, and the files of the HTML page."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


def sample_text() -> str:
    """An English text of a few thousand words, for queries in token space."""
    return files(__name__).joinpath("sample.txt").read_text(encoding="utf-8")


@cache
def page_file(name: str) -> str:
    """One of the files that are put into every HTML page: style, script, plotting library."""
    return files(__name__).joinpath("page", name).read_text(encoding="utf-8")
