"""The plain values that trainers save beside the weights, as text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Longer values are data, not settings.
LONGEST_VALUE = 20_000
MOST_PARTS = 1000


def plain_values(values: Mapping[str, Any], *, prefix: Sequence[str] = ()) -> dict[str, str]:
    """Text as it is, numbers and small plain containers as JSON, under dotted names.

    Tensors, empty dictionaries and whatever JSON cannot say are left out.
    """
    found: dict[str, str] = {}
    for key, value in values.items():
        text = value if isinstance(value, str) else _as_json(value)
        if text is not None and len(text) <= LONGEST_VALUE:
            found[".".join([*prefix, key])] = text
    return found


def _as_json(value: object) -> str | None:
    if not isinstance(value, bool | int | float | dict | list | tuple | None):
        return None
    if isinstance(value, dict) and not value:
        return None
    try:
        return json.dumps(value) if _budget_after(value, MOST_PARTS) > 0 else None
    except (TypeError, ValueError, RecursionError):
        return None


def _budget_after(value: object, budget: int) -> int:
    """What is left of a budget once a value's parts are counted; doubling lists exhaust it."""
    budget -= 1
    if isinstance(value, dict):
        value = list(dict.values(value))
    if isinstance(value, list | tuple):
        for part in value:
            if budget <= 0:
                return 0
            budget = _budget_after(part, budget)
    return budget
