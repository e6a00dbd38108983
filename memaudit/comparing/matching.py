"""Which thing of one report is which of the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from memaudit.comparing.difference import Apart, Change

Key = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Told:
    """One thing that a report tells of: its name, its place, and its facts."""

    name: str
    where: str
    facts: dict[str, Any]


def changes(
    before: Iterable[Told],
    after: Iterable[Told],
    *,
    distance: Callable[[Change], Apart | None] | None = None,
) -> tuple[Change, ...]:
    """Things of one name and place side by side, each where it first stands in a report."""
    one, other = _keyed(before), _keyed(after)
    found = []
    for key in in_order(list(one), list(other)):
        where, name, _ = key
        change = Change(name, one.get(key), other.get(key), where)
        found.append(change if distance is None else replace(change, apart=distance(change)))
    return tuple(found)


def in_order(first: list[Any], second: list[Any]) -> list[Any]:
    """The members of both lists, by the earlier place; the same for the lists in any order."""
    places: dict[Any, int] = {}
    for listed in (first, second):
        for place, key in enumerate(listed):
            places[key] = min(place, places.get(key, place))
    return sorted(places, key=lambda key: (places[key], str(key)))


def _keyed(told: Iterable[Told]) -> dict[Key, dict[str, Any]]:
    """Facts by place and name; of several with one name the first belongs to the first."""
    seen: Counter[tuple[str, str]] = Counter()
    found: dict[Key, dict[str, Any]] = {}
    for item in told:
        place = (item.where, item.name)
        found[*place, seen[place]] = item.facts
        seen[place] += 1
    return found
