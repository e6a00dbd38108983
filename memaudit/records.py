"""Records that turn into plain JSON values and compare by them."""

from __future__ import annotations

from dataclasses import fields
from enum import StrEnum
from typing import Any, Self

import numpy as np


class Record:
    """A frozen dataclass that turns into plain JSON values and compares by them."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values only, in the order of the fields."""
        return {f.name: plain(getattr(self, f.name)) for f in fields(self)}  # type: ignore[arg-type]

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The inverse of `to_dict`, for records of plain values."""
        return cls(**data)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.to_dict() == self.to_dict()  # type: ignore[attr-defined]

    __hash__ = None  # type: ignore[assignment]


def plain(value: Any) -> Any:
    """A value as JSON can hold it: lists, dicts, strings, finite numbers, booleans, None."""
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, StrEnum):
        return value.name.lower()
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
