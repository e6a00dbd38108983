"""Gates on what changed between two reports: `horizon<-20%`, `new-warning`, and those of AFTER."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from memaudit.cli.conditions import (
    CERTAIN,
    Asked,
    Condition,
    check_limit,
    checked_name,
    is_condition,
    parse_number,
    split,
)
from memaudit.cli.gates import NEW, Gate, of_one_model, parse_finding, told_of, unless_partial
from memaudit.cli.shifts import Shift
from memaudit.errors import ArgumentError, clean
from memaudit.report import SEVERITIES, Finding, GateResult

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memaudit.report import Report


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
        result = self.gate.judge(after)
        certain = isinstance(self.gate, Condition) and self.gate.name in CERTAIN
        return result if certain else unless_partial(result, AFTER=after)


@dataclass(frozen=True, slots=True)
class NewFinding:
    """Hit by a finding that only AFTER has, or that is now of a level that it was not before."""

    gate: Gate

    def compare(self, before: Report, after: Report) -> GateResult:
        """The findings that came."""
        came = self._came(before, after)
        reason = "" if came else self.gate.unmet(after)
        if reason:
            return GateResult(self.gate.word, True, f"{self.gate.code}: in AFTER {reason}")
        result = told_of(self.gate.word, came, kind="the new ")
        if came and not before.complete:
            told = f"{result.told}, if it is new: BEFORE is incomplete"
            return GateResult(self.gate.word, hit=True, told=told)
        return unless_partial(result, AFTER=after)

    def _came(self, before: Report, after: Report) -> list[Finding]:
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
        return came


def parse_change_gates(words: Iterable[str]) -> tuple[ChangeGate, ...]:
    """The gates behind the words, or an error before anything is compared."""
    return tuple(_gate(word.strip()) for word in words)


def rank(severity: str) -> int:
    """How grave a level is; an unknown one is the least."""
    return SEVERITIES.index(severity) if severity in SEVERITIES else -1


def _gate(word: str) -> ChangeGate:
    if is_condition(word):
        name, sign, number = split(word)
        plain = checked_name(name, None)
        if number.endswith("%"):
            return Shift(word, plain, sign, parse_number(number[:-1].strip(), word), name)
        made = Condition(word, plain, sign, parse_number(number, word), name)
        check_limit(made, Asked(), hint=f'did you mean "{clean(word)}%"?')
        return Later(made)
    if word.lower().startswith(NEW):
        wanted = word[len(NEW) :].strip()
        if not wanted:
            fact = f"--fail-on {clean(word)} does not say what is new"
            raise ArgumentError(fact, hint="give a level or a finding: new-warning, new-MA201")
        return NewFinding(of_one_model(parse_finding(wanted, asked=Asked(), option=word)))
    return Later(of_one_model(parse_finding(word, asked=Asked())))
