"""Inert values: what stands for the classes, calls and dictionaries of a pickle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True, eq=False)
class Named:
    """A class or function that the pickle names; it is not looked up."""

    name: str


@dataclass(slots=True, eq=False)
class Pairs:
    """A dictionary as its pairs: hostile keys are never hashed."""

    pairs: list[tuple[Any, Any]]


@dataclass(slots=True, eq=False)
class Made:
    """What a call would have made: who was to be called, with what, and what was put in later."""

    maker: Any
    arguments: Any
    state: Any = None
    pairs: list[tuple[Any, Any]] | None = None
    items: list[Any] | None = None

    @property
    def name(self) -> str:
        """The maker's name; one that was itself made has none."""
        return self.maker.name if isinstance(self.maker, Named) else ""
