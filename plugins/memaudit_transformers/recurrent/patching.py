"""Putting other functions in the place of kernels for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from memaudit_transformers.recurrent.places import Place

_ABSENT = object()


@contextmanager
def replaced(changes: Iterable[tuple[Place, Callable[..., Any]]]) -> Iterator[None]:
    """The functions in their places while this is open; the very same old ones afterwards."""
    before: list[tuple[Place, Any]] = []
    try:
        for place, function in changes:
            before.append((place, place.namespace.get(place.name, _ABSENT)))
            place.namespace[place.name] = function
        yield
    finally:
        for place, old in reversed(before):
            if old is _ABSENT:
                place.namespace.pop(place.name, None)
            else:
                place.namespace[place.name] = old
