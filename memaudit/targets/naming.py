"""Targets by name and numbers, as in poly:1.1."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from memaudit import registry
from memaudit.errors import ArgumentError, clean

if TYPE_CHECKING:
    from memaudit.target import AbstractTarget


def known(text: object) -> bool:
    """Whether a text begins with the name of a target."""
    return isinstance(text, str) and text.partition(":")[0] in registry.available("targets")


def target(text: str) -> AbstractTarget:
    """The target of a text such as exp:0.9, poly:1.5,0.1 or lotka-volterra."""
    name, _, numbers = str(text).partition(":")
    kind: Any = registry.load(registry.find("targets", name))
    words = [word for word in numbers.split(",") if word.strip()]
    options = [field.name for field in fields(kind)]
    try:
        values = [float(word) for word in words]
    except ValueError:
        values = None
    if values is None or len(values) > len(options):
        told = f"it takes {', '.join(options)}" if options else "it takes none"
        raise ArgumentError(
            f"the target {clean(text)} has no number that fits", hint=f"{told}, as in {kind()}"
        )
    return registry.build("targets", name, **dict(zip(options, values, strict=False)))


def check_number(target: AbstractTarget, option: str, *, low: float, high: float) -> None:
    """Refuse a number of a target that is not between two others, or is one of them."""
    value: Any = getattr(target, option)
    if isinstance(value, bool) or not isinstance(value, int | float) or not low < value < high:
        fact = f"the target {target.name} has no number that fits: {option} is {clean(value)}"
        raise ArgumentError(fact, hint=f"take a number between {low:g} and {high:g}")
