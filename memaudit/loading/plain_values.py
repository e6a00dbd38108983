"""The plain values that trainers save beside the weights, as text."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Longer values are data, not settings.
LONGEST_VALUE = 20_000
MOST_PARTS = 1000
_UNSAYABLE = object()


def plain_values(values: Mapping[str, Any], *, prefix: Sequence[str] = ()) -> dict[str, str]:
    """Text as it is, numbers and small plain containers as JSON, under dotted names.

    Tensors, empty dictionaries and whatever JSON cannot say are left out, also inside containers.
    """
    found: dict[str, str] = {}
    for key, value in values.items():
        text = value if isinstance(value, str) else _as_json(value)
        if text is not None and len(text) <= LONGEST_VALUE:
            found[".".join([*prefix, key])] = text
    return found


def _as_json(value: object) -> str | None:
    try:
        said = _Speaker().say(value)
        if said is _UNSAYABLE or said == {}:
            return None
        return json.dumps(said, allow_nan=False)
    except (_TooMany, ValueError, RecursionError):
        return None


class _TooMany(Exception):  # noqa: N818
    """The value has more parts than a setting has."""


class _Speaker:
    """Copies what JSON can say out of a value; lists that double exhaust its patience."""

    def __init__(self) -> None:
        self._left = MOST_PARTS

    def say(self, value: object) -> Any:
        """The value without the parts that JSON cannot say."""
        self._left -= 1
        if self._left < 0:
            raise _TooMany
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else _UNSAYABLE
        if isinstance(value, dict):
            named = [(k, v) for k, v in dict.items(value) if k is None or isinstance(k, str | int)]
            said = {key: self.say(part) for key, part in named}
            return {key: part for key, part in said.items() if part is not _UNSAYABLE}
        if isinstance(value, list | tuple):
            parts = [self.say(part) for part in value]
            return [None if part is _UNSAYABLE else part for part in parts]
        return _UNSAYABLE
