"""Gates on what changed between two reports: `horizon<-20%`, `new-warning`, and those of AFTER."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from memaudit.cli.conditions import (
    OPERATORS,
    Asked,
    Condition,
    beside,
    check_limit,
    checked_name,
    found,
    is_condition,
    parse_number,
    shown,
    split,
)
from memaudit.cli.gates import NEW, Gate, of_one_model, parse_finding, told_of
from memaudit.errors import clean
from memaudit.metrics import measured
from memaudit.results import SEVERITIES, Finding, GateResult

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memaudit.results import Report


class ChangeGate(Protocol):
    """A gate between two reports."""

    def compare(self, before: Report, after: Report) -> GateResult:
        """What it says of them."""
        ...


@dataclass(frozen=True, slots=True)
class Later:
    """A gate that looks at the later report only."""

    gate: Gate | Condition

    def compare(self, before: Report, after: Report) -> GateResult:
        """What the gate says of the later report."""
        del before
        return self.gate.judge(after)


@dataclass(frozen=True, slots=True)
class NewFinding:
    """Hit by a finding that only AFTER has, or that is now of a level that it was not before."""

    gate: Gate

    def compare(self, before: Report, after: Report) -> GateResult:
        """The findings that came."""
        from memaudit.comparing import compare

        came: list[Finding] = []
        for change in compare(before, after).findings:
            facts = change.after
            if facts is None:
                continue
            finding = Finding(change.name, **facts, where=change.where)
            earlier = None if change.before is None else change.before["severity"]
            risen = earlier is not None and rank(earlier) < rank(finding.severity)
            fresh = earlier is None or (risen and earlier not in self.gate.severities)
            if fresh and self.gate.hit_by(finding):
                came.append(finding)
        reason = "" if came else self.gate.unmet(after)
        if reason:
            return GateResult(self.gate.word, True, f"{self.gate.code}: in AFTER {reason}")
        return told_of(self.gate.word, came, kind="the new ")


@dataclass(frozen=True, slots=True)
class Shift:
    """The change of a number, in percent of what it was, beside a limit.

    From one beyond the window to another nothing changed; from beyond it to inside is a fall of
    100 %. Where the windows differ, one beyond its own tells nothing, and the gate is hit, unless
    it waits for a fall and AFTER reaches at least as far as BEFORE looked.
    """

    word: str
    name: str
    sign: str
    limit: float

    def compare(self, before: Report, after: Report) -> GateResult:
        """Whether the number changed beyond the limit."""
        sides = measured(before), measured(after)
        (key, old), (other, new) = (found(numbers, self.name) for numbers in sides)
        if old is None or new is None:
            side = "BEFORE" if old is None else "AFTER"
            return GateResult(self.word, True, f"{self.name}, which {side} has not measured")
        words = f"{shown(sides[0], key, old)} -> {shown(sides[1], other, new)}"
        windows = [report.settings.get("horizon") for report in (before, after)]
        endless = "horizon" in key and math.inf in (old, new)
        if endless and windows[0] != windows[1]:
            if self._no_fall(sides[0].get(beside(key), old), sides[1].get(beside(other), new)):
                return GateResult(self.word, False, f"{self.name} ({words}) is no fall")
            told = f"{self.name} ({words}), whose windows differ: {windows[0]} -> {windows[1]}"
            return GateResult(self.word, True, told)
        change = percent(old, new)
        if not OPERATORS[self.sign](change, self.limit):
            return GateResult(self.word, False)
        return GateResult(self.word, True, f"{self.name} {change:+.4g} % ({words})")

    def _no_fall(self, old: float, new: float) -> bool:
        """Whether a gate on a fall sees none: AFTER reaches at least as far as BEFORE looked."""
        return self.sign in ("<", "<=") and self.limit <= 0 and new >= old


def parse_change_gates(words: Iterable[str]) -> tuple[ChangeGate, ...]:
    """The gates behind the words, or an error before anything is compared."""
    return tuple(_gate(word.strip()) for word in words)


def percent(old: float, new: float) -> float:
    """The change in hundredths of what it was; whole numbers that meet a limit meet it exactly."""
    if old == new:
        return 0.0
    if math.isinf(old):
        return -100.0
    if old == 0.0 or math.isinf(new):
        return math.copysign(math.inf, new - old)
    return 100.0 * (new - old) / abs(old)


def rank(severity: str) -> int:
    """How grave a level is; an unknown one is the least."""
    return SEVERITIES.index(severity) if severity in SEVERITIES else -1


def _gate(word: str) -> ChangeGate:
    if is_condition(word):
        name, sign, number = split(word)
        plain = checked_name(name, None)
        if number.endswith("%"):
            return Shift(word, plain, sign, parse_number(number[:-1].strip(), word))
        made = Condition(word, plain, sign, parse_number(number, word))
        check_limit(made, Asked(), hint=f'did you mean "{clean(word)}%"?')
        return Later(made)
    if word.lower().startswith(NEW):
        wanted = parse_finding(word[len(NEW) :], asked=Asked(), option=word)
        return NewFinding(of_one_model(wanted))
    return Later(of_one_model(parse_finding(word, asked=Asked())))
