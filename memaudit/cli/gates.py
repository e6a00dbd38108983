"""The gates of `--fail-on`: a severity and everything above it, one finding, or a number."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memaudit.cli.conditions import (
    Asked,
    Condition,
    is_condition,
    known_names,
    parse_condition,
    unasked,
)
from memaudit.cli.output import say
from memaudit.cli.rules import rules
from memaudit.errors import ArgumentError, clean, nearest
from memaudit.needs import lacking, unmet
from memaudit.report import SEVERITIES, GateResult, Report
from memaudit.rule import FAMILY, AbstractRule

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from memaudit.families.result import FamilyReport
    from memaudit.report import Finding

#: What stands before a level or code in a gate of `memaudit diff`.
NEW = "new-"
INCOMPLETE = "as far as was measured, for the audit is incomplete"


@dataclass(frozen=True, slots=True)
class Gate:
    """What makes an audit fail: severities, or the code of one finding."""

    word: str
    severities: frozenset[str] = frozenset()
    code: str = ""
    #: The rule behind the code.
    rule: type[AbstractRule] | None = None

    def hit_by(self, finding: Finding) -> bool:
        """Whether this finding closes the gate."""
        return finding.severity in self.severities or finding.code == self.code

    def judge(self, report: Report | FamilyReport) -> GateResult:
        """Whether a finding of the report closes the gate, and which.

        A rule whose probe did not run cannot tell, and a gate that does not know is hit.
        """
        found = [f for f in report.findings if self.hit_by(f)]
        reason = "" if found else self.unmet(report)
        if reason:
            return GateResult(self.word, hit=True, told=f"{self.code}, for {reason}")
        return told_of(self.word, found)

    def unmet(self, report: Report | FamilyReport) -> str:
        """Why the rule could not tell, "" when it could."""
        if self.rule is None or not isinstance(report, Report):
            return ""
        return unmet(self.rule, report)


def parse_family_gates(words: Iterable[str]) -> tuple[Gate, ...]:
    """The gates behind the words, or an error before any work starts; findings of families."""
    gates = tuple(parse_finding(word) for word in words)
    for gate in gates:
        if gate.rule is not None and gate.rule.check_family is AbstractRule.check_family:
            fact = f"{gate.code} is told of one model, not of a family"
            raise ArgumentError(fact, hint="give it to memaudit scan")
    return gates


def parse_scan_gates(words: Iterable[str], asked: Asked) -> tuple[Gate | Condition, ...]:
    """The gates of a scan: findings, and the numbers that the queries and probes measure."""
    return tuple(
        parse_condition(word, asked) if is_condition(word) else _tellable(word, asked)
        for word in words
    )


def of_one_model(gate: Gate) -> Gate:
    """The gate, or an error when its finding is told of families only."""
    if gate.rule is not None and FAMILY in gate.rule.needs:
        fact = f"{gate.code} is told of a family of models, not of one"
        raise ArgumentError(fact, hint="give it to memaudit family")
    return gate


def judged(gates: Iterable[Gate | Condition], report: Report) -> tuple[GateResult, ...]:
    """What every gate says, in the order in which they were given.

    An incomplete audit never passes: its exit code says so, and in files of reports, which have
    none, its open gates do.
    """
    results = tuple(gate.judge(report) for gate in gates)
    if report.complete:
        return results
    return tuple(r if r.hit else replace(r, told=r.told or INCOMPLETE) for r in results)


def unless_partial(result: GateResult, **sides: Report) -> GateResult:
    """The result, hit where it would be open only because a report was cut short."""
    partial = [side for side, report in sides.items() if not report.complete]
    if result.hit or not partial:
        return result
    told = f"what {' and '.join(partial)} did not measure, being incomplete"
    return GateResult(result.word, hit=True, told=told)


def told_of(word: str, findings: Sequence[Finding], kind: str = "") -> GateResult:
    """The gate that these findings hit, if there are any."""
    if not findings:
        return GateResult(word, hit=False)
    first, rest = findings[0], len(findings) - 1
    where = f" at {clean(first.where)}" if first.where else ""
    more = f" and {rest} more" if rest else ""
    return GateResult(word, hit=True, told=f"{kind}{first.code} {clean(first.name)}{where}{more}")


def say_gates(results: Iterable[GateResult]) -> bool:
    """A line for every gate that has something to tell; whether one of them was hit."""
    hit = False
    for result in results:
        hit = hit or result.hit
        if result.hit:
            say(f"gate --fail-on {result.word} was hit by {result.told}")
        elif result.told:
            say(f"gate --fail-on {result.word} was not hit: {result.told}")
    return hit


def _tellable(word: str, asked: Asked) -> Gate:
    """A gate on findings of a scan that measures what they need."""
    gate = of_one_model(parse_finding(word, asked=asked))
    missing = "" if gate.rule is None else lacking(gate.rule, asked.queries, asked.probes)
    if missing:
        raise unasked(missing, gate.code, asked)
    return gate


def parse_finding(word: str, *, asked: Asked | None = None, option: str = "") -> Gate:
    """A level, or a finding by code or name; `option` is the word as the user gave it."""
    lowered, given = word.strip().lower(), option or word.strip()
    if lowered in SEVERITIES:
        return Gate(given, severities=frozenset(SEVERITIES[SEVERITIES.index(lowered) :]))
    known = {name.lower(): rule for name, rule in rules().items()}
    if lowered in known:
        return Gate(given, code=known[lowered].code, rule=known[lowered])
    numbers = known_names(asked) if asked is not None else ()
    if lowered in numbers:
        hint = f'compare it, as in "{lowered}<100" (without blanks in MEMAUDIT_FAIL_ON)'
        raise ArgumentError(f"--fail-on {lowered} is a number, not a finding", hint=hint)
    hint = f"give {', '.join(SEVERITIES)} or a code such as MA102; repeat it for several"
    close = nearest(lowered, [*known, *SEVERITIES, *numbers])
    if close.startswith("did you mean"):
        hint = re.sub(r"\bma(?=\d)", "MA", close)
    if lowered.startswith(NEW) and not option:
        hint = "what is new is for memaudit diff BEFORE.json AFTER.json"
    raise ArgumentError(f"--fail-on knows no level or finding {clean(word)!r}", hint=hint)
