"""Gates on the change of a number between two reports: `horizon<-20%`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memaudit.cli.conditions import CERTAIN, OPERATORS
from memaudit.cli.gates import unless_partial
from memaudit.cli.sides import Side, unlike
from memaudit.cli.sought import called, sought
from memaudit.report import GateResult

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memaudit.metrics import Number
    from memaudit.report import Report


@dataclass(frozen=True, slots=True)
class Shift:
    """The change of a number, in percent of what it was, beside a limit.

    From one beyond what was looked at to another nothing changed; from beyond it to inside is a
    fall of 100 %. Where one side was looked at less far, or with another window, what lies behind
    tells nothing, and the gate is hit, unless it waits for a fall and AFTER reaches at least as far
    as BEFORE looked. What a side has not measured, or only in part, or in another way than the
    other, hits the gate.
    """

    word: str
    name: str
    sign: str
    limit: float
    given: str = ""

    def compare(self, before: Report, after: Report) -> GateResult:
        """Whether the number changed beyond the limit, or one of those that the name means."""
        told = [self._told(name, old, new) for name, old, new in self._pairs(before, after)]
        first = min(told, key=lambda result: (not result.hit, not result.told))
        return first if self.name in CERTAIN else unless_partial(first, BEFORE=before, AFTER=after)

    def _pairs(self, before: Report, after: Report) -> Iterator[tuple[str, Side, Side]]:
        given = self.given or self.name
        old, new = _by_name(before, given), _by_name(after, given)
        if max(len(old), len(new)) <= 1:
            name = called(given, [*old.items(), *new.items()])
            numbers = [next(iter(side.values()), None) for side in (old, new)]
            yield name, Side("BEFORE", before, numbers[0]), Side("AFTER", after, numbers[1])
            return
        for name in dict.fromkeys((*old, *new)):
            yield name, Side("BEFORE", before, old.get(name)), Side("AFTER", after, new.get(name))

    def _told(self, name: str, old: Side, new: Side) -> GateResult:
        """What is to be said of one number."""
        words = f"{old.shown} -> {new.shown}"
        unread = [side.word for side in (old, new) if math.isnan(side.value)]
        if unread:
            return self._hit(f"{name}, which {unread[0]} has not measured")
        unsure = self._unsure(old, new)
        change = percent(old.value, new.value)
        if not unsure and OPERATORS[self.sign](change, self.limit):
            return self._hit(f"{name} {change:+.4g} % ({words})")
        gaps = [f"{side.word} has not measured {gap}" for side in (old, new) if (gap := side.gaps)]
        if gaps:
            return self._hit(f"{name}, which {gaps[0]}")
        if reason := unlike(old, new):
            return self._hit(f"{name} ({words}), {reason}")
        if not unsure:
            return GateResult(self.word, hit=False)
        if self._falls and self.limit <= 0 and new.reach >= old.reach:
            return GateResult(self.word, hit=False, told=f"{name} ({words}) is no fall")
        return self._hit(f"{name} ({words}), {unsure}")

    @property
    def _falls(self) -> bool:
        return self.sign in ("<", "<=")

    def _unsure(self, old: Side, new: Side) -> str:
        """Why what lies behind the end of one side does not tell the change, "" where it does."""
        if not old.endless and not new.endless:
            return ""
        windows = [side.report.settings.get("horizon") for side in (old, new)]
        if old.of_lags and windows[0] != windows[1]:
            return f"whose windows differ: {windows[0]} -> {windows[1]}"
        short = min(old, new, key=lambda side: (side.reach, not side.endless))
        if not short.endless or self._reaches_alike(old, new):
            return ""
        return f"for {short.word} was looked at only to {short.reach:.4g}"

    def _reaches_alike(self, old: Side, new: Side) -> bool:
        """Whether as much was looked at on the side that was looked at less as the gate needs."""
        if old.endless and new.endless:
            if old.reach == new.reach:
                return True
            # A half-life counts from the top of a curve, which may move by some lags.
            top = old.number is not None and old.number.metric == "half_life"
            return top and not OPERATORS[self.sign](percent(old.reach, new.reach), self.limit)
        if old.endless:
            return False
        if not self._falls:
            return new.least > old.value
        return not OPERATORS[self.sign](percent(old.value, new.least), self.limit)

    def _hit(self, told: str) -> GateResult:
        return GateResult(self.word, hit=True, told=told)


def percent(old: float, new: float) -> float:
    """The change in hundredths of what it was; whole numbers that meet a limit meet it exactly."""
    if old == new:
        return 0.0
    if math.isinf(old):
        return -100.0
    if old == 0.0 or math.isinf(new):
        return math.copysign(math.inf, new - old)
    return 100.0 * (new - old) / abs(old)


def _by_name(report: Report, given: str) -> dict[str, Number]:
    """The numbers that a name means; of two with one name the unmeasured one counts."""
    found: dict[str, Number] = {}
    for name, number in sought(report, given):
        if name not in found or number.value is None:
            found[name] = number
    return found
