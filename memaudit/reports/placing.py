"""The name of a layer in a model that has several parts."""

from __future__ import annotations


def placed(where: str, name: str) -> str:
    """A layer behind the part of the model that it stands in, once where both are the same."""
    return f"{where}: {name}" if where and where != name else name
