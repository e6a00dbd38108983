"""The gates of `--fail-on`: a severity and everything above it, or one finding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memaudit.cli.rules import rules
from memaudit.errors import ArgumentError, clean
from memaudit.results import SEVERITIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from memaudit.results import Finding


@dataclass(frozen=True, slots=True)
class Gate:
    """What makes an audit fail: severities, or the code of one finding."""

    word: str
    severities: frozenset[str] = frozenset()
    code: str = ""

    def hit_by(self, finding: Finding) -> bool:
        """Whether this finding closes the gate."""
        return finding.severity in self.severities or finding.code == self.code


def parse_gates(words: Iterable[str]) -> tuple[Gate, ...]:
    """The gates behind the words, or an error before any work starts."""
    return tuple(_gate(word) for word in words)


def first_hit(gates: Sequence[Gate], findings: Sequence[Finding]) -> tuple[Gate, Finding] | None:
    """The first gate that a finding closes, with that finding."""
    for gate in gates:
        for finding in findings:
            if gate.hit_by(finding):
                return gate, finding
    return None


def _gate(word: str) -> Gate:
    lowered = word.strip().lower()
    if lowered in SEVERITIES:
        return Gate(lowered, severities=frozenset(SEVERITIES[SEVERITIES.index(lowered) :]))
    known = {name.lower(): rule.code for name, rule in rules().items()}
    if lowered not in known:
        hint = f"give {', '.join(SEVERITIES)} or a code such as MA102; repeat it for several"
        raise ArgumentError(f"--fail-on knows no level or finding {clean(word)!r}", hint=hint)
    return Gate(word, code=known[lowered])
