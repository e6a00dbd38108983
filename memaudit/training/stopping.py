"""When a run should be stopped: conditions such as `margin<1e-5`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memaudit.errors import ArgumentError, clean, nearest
from memaudit.training.reading import QUANTITIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memaudit.training.reading import Reading

NONFINITE = "nonfinite"
DRIFT = "drift"
_COMPARISON = re.compile(r"\s*(?P<name>\w+)\s*(?P<way>[<>])\s*(?P<limit>[-+.\w]+)\s*")


@dataclass(frozen=True, slots=True)
class Limit:
    """A quantity that must not go below, or above, a number."""

    name: str
    way: str
    limit: float

    def passed(self, reading: Reading) -> str:
        """The sentence when it was passed, or nothing."""
        value = reading.value(self.name)
        if value is None or math.isnan(value):
            return ""
        if not (value < self.limit if self.way == "<" else value > self.limit):
            return ""
        which = "below" if self.way == "<" else "above"
        return f"{self.name} is {value:.4g}, {which} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class StopConditions:
    """All of them; `nonfinite` and `drift` are conditions by name."""

    limits: tuple[Limit, ...] = ()
    names: frozenset[str] = frozenset()

    def reason(self, reading: Reading, drifts: Sequence[str]) -> str:
        """Why the run should stop, or nothing."""
        if NONFINITE in self.names and not reading.finite:
            return "a recurrent weight or its gradient is no number any more"
        told = (limit.passed(reading) for limit in self.limits)
        found = next((reason for reason in told if reason), "")
        return found or (drifts[0] if DRIFT in self.names and drifts else "")


def stop_conditions(words: Sequence[str] | str) -> StopConditions:
    """The conditions that the words spell."""
    limits, names = [], set()
    for word in [words] if isinstance(words, str) else words:
        if word in (NONFINITE, DRIFT):
            names.add(word)
            continue
        limits.append(_limit(word))
    return StopConditions(tuple(limits), frozenset(names))


def _limit(word: str) -> Limit:
    found = _COMPARISON.fullmatch(word)
    if found is None:
        raise ArgumentError(
            f"stop_on has {clean(word)!r}",
            hint=f"write margin<1e-5, or one of: {NONFINITE}, {DRIFT}",
        )
    if found["name"] not in QUANTITIES:
        raise ArgumentError(
            f"nothing called {clean(found['name'])!r} is measured",
            hint=nearest(found["name"], QUANTITIES),
        )
    try:
        return Limit(found["name"], found["way"], float(found["limit"]))
    except ValueError:
        raise ArgumentError(
            f"stop_on has {clean(word)!r}", hint="behind < or > stands a number, such as 1e-5"
        ) from None
