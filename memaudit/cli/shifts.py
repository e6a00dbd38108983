"""Gates on the change of a number between two reports: `horizon<-20%`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memaudit.cli.conditions import CERTAIN, LAGS, OPERATORS
from memaudit.cli.gates import unless_partial
from memaudit.cli.sought import places, shown, sought
from memaudit.results import GateResult

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memaudit.metrics import Number
    from memaudit.results import Report


@dataclass(frozen=True, slots=True)
class Shift:
    """The change of a number, in percent of what it was, beside a limit.

    From one beyond the window to another nothing changed; from beyond it to inside is a fall of
    100 %. Where the windows differ, one beyond its own tells nothing, and the gate is hit, unless
    it waits for a fall and AFTER reaches at least as far as BEFORE looked. What a side has not
    measured, or only in part, hits the gate.
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
            numbers = [next(iter(side.values()), None) for side in (old, new)]
            yield self.name, Side("BEFORE", before, numbers[0]), Side("AFTER", after, numbers[1])
            return
        for name in dict.fromkeys((*old, *new)):
            yield name, Side("BEFORE", before, old.get(name)), Side("AFTER", after, new.get(name))

    def _told(self, name: str, old: Side, new: Side) -> GateResult:
        """What is to be said of one number."""
        words = f"{old.shown} -> {new.shown}"
        unread = [side.word for side in (old, new) if math.isnan(side.value)]
        if unread:
            return self._hit(f"{name}, which {unread[0]} has not measured")
        windows = [side.report.settings.get("horizon") for side in (old, new)]
        endless = math.inf in (old.value, new.value) and old.of_lags
        comparable = not endless or windows[0] == windows[1]
        change = percent(old.value, new.value)
        if comparable and OPERATORS[self.sign](change, self.limit):
            return self._hit(f"{name} {change:+.4g} % ({words})")
        gaps = [f"{side.word} has not measured {gap}" for side in (old, new) if (gap := side.gaps)]
        if gaps:
            return self._hit(f"{name}, which {gaps[0]}")
        if comparable:
            return GateResult(self.word, hit=False)
        if self.sign in ("<", "<=") and self.limit <= 0 and new.reach >= old.reach:
            return GateResult(self.word, hit=False, told=f"{name} ({words}) is no fall")
        return self._hit(f"{name} ({words}), whose windows differ: {windows[0]} -> {windows[1]}")

    def _hit(self, told: str) -> GateResult:
        return GateResult(self.word, hit=True, told=told)


@dataclass(frozen=True, slots=True)
class Side:
    """A number of one of the two reports."""

    word: str
    report: Report
    number: Number | None

    @property
    def value(self) -> float:
        """The number, NaN where it was not measured."""
        known = None if self.number is None else self.number.value
        return math.nan if known is None else known

    @property
    def reach(self) -> float:
        """The number, or how far was looked where it lies behind that."""
        beyond = None if self.number is None else self.number.beyond
        return self.value if beyond is None else beyond

    @property
    def shown(self) -> str:
        """The number in words."""
        return "" if self.number is None else shown(self.number)

    @property
    def of_lags(self) -> bool:
        """Whether it counts lags."""
        return self.number is not None and self.number.metric in LAGS

    @property
    def gaps(self) -> str:
        """Where it was not measured, as far as that may change it."""
        if self.number is None:
            return ""
        return places(self.report, (*self.number.lower, *self.number.higher))


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
