"""The gates of `--fail-on`: a severity and everything above it, one finding, or a number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memaudit.cli.conditions import Asked, Condition, is_condition, known_names, parse_condition
from memaudit.cli.output import say
from memaudit.cli.rules import rules
from memaudit.errors import ArgumentError, clean, nearest
from memaudit.results import SEVERITIES, GateResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from memaudit.results import FamilyReport, Finding, Report


@dataclass(frozen=True, slots=True)
class Gate:
    """What makes an audit fail: severities, or the code of one finding."""

    word: str
    severities: frozenset[str] = frozenset()
    code: str = ""

    def hit_by(self, finding: Finding) -> bool:
        """Whether this finding closes the gate."""
        return finding.severity in self.severities or finding.code == self.code

    def judge(self, report: Report | FamilyReport) -> GateResult:
        """Whether a finding of the report closes the gate, and which."""
        return told_of(self.word, [f for f in report.findings if self.hit_by(f)])


def parse_gates(words: Iterable[str], *, asked: Asked | None = None) -> tuple[Gate, ...]:
    """The gates behind the words, or an error before any work starts; findings only."""
    return tuple(parse_finding(word, asked=asked) for word in words)


def parse_scan_gates(words: Iterable[str], asked: Asked) -> tuple[Gate | Condition, ...]:
    """The gates of a scan: findings, and the numbers that the queries and probes measure."""
    return tuple(
        parse_condition(word, asked) if is_condition(word) else parse_finding(word, asked=asked)
        for word in words
    )


def judged(gates: Iterable[Gate | Condition], report: Report) -> tuple[GateResult, ...]:
    """What every gate says, in the order in which they were given."""
    return tuple(gate.judge(report) for gate in gates)


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


def parse_finding(word: str, *, asked: Asked | None = None, option: str = "") -> Gate:
    """A level, or a finding by code or name; `option` is the word as the user gave it."""
    lowered, given = word.strip().lower(), option or word.strip()
    if lowered in SEVERITIES:
        return Gate(given, severities=frozenset(SEVERITIES[SEVERITIES.index(lowered) :]))
    codes = {name.lower(): rule.code for name, rule in rules().items()}
    if lowered in codes:
        return Gate(given, code=codes[lowered])
    numbers = known_names(asked) if asked is not None else ()
    if lowered in numbers:
        hint = f'compare it, as in "{lowered}<100" (without blanks in MEMAUDIT_FAIL_ON)'
        raise ArgumentError(f"--fail-on {lowered} is a number, not a finding", hint=hint)
    hint = f"give {', '.join(SEVERITIES)} or a code such as MA102; repeat it for several"
    close = nearest(lowered, [*codes, *SEVERITIES, *numbers])
    hint = close if close.startswith("did you mean") else hint
    raise ArgumentError(f"--fail-on knows no level or finding {clean(word)!r}", hint=hint)
