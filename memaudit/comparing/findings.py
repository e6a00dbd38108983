"""Findings that came, went and stayed; one that stays may tell other numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from memaudit.comparing.difference import Change
from memaudit.report import Finding

#: Numbers that stand by themselves; the 8 of int8 is part of a name.
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d.,]*(?:e[-+]?\d+)?(?!\w)")

Alike = Callable[[Finding], Hashable]


def finding_changes(before: Sequence[Finding], after: Sequence[Finding]) -> tuple[Change, ...]:
    """One change per finding of either report, where it first stands in one.

    The same finding is the one with the same text, else with the same but for its numbers, else
    the only one that is left of that code in that place.
    """
    left, right = dict(enumerate(before)), dict(enumerate(after))
    pairs = [*_paired(left, right, _text), *_paired(left, right, _shape)]
    pairs += _paired(left, right, _place, alone=True)
    pairs += [(place, None) for place in left] + [(None, place) for place in right]
    found = [
        (
            min(place for place in pair if place is not None),
            _change(
                None if pair[0] is None else before[pair[0]],
                None if pair[1] is None else after[pair[1]],
            ),
        )
        for pair in pairs
    ]
    return tuple(change for _, change in sorted(found, key=lambda item: (item[0], _words(item[1]))))


def _paired(
    left: dict[int, Finding], right: dict[int, Finding], alike: Alike, *, alone: bool = False
) -> list[tuple[int, int]]:
    """Take what is alike out of both; `alone` pairs only what has no rival on its own side."""
    pairs: list[tuple[int, int]] = []
    groups: dict[Hashable, tuple[list[int], list[int]]] = {}
    for side, listed in enumerate((left, right)):
        for place, finding in listed.items():
            groups.setdefault(alike(finding), ([], []))[side].append(place)
    for ours, theirs in groups.values():
        if alone and (len(ours) > 1 or len(theirs) > 1):
            continue
        pairs += zip(ours, theirs, strict=False)
    for one, other in pairs:
        del left[one], right[other]
    return pairs


def _place(finding: Finding) -> Hashable:
    return finding.code, finding.where


def _text(finding: Finding) -> Hashable:
    return finding.code, finding.where, finding.message


def _shape(finding: Finding) -> Hashable:
    return finding.code, finding.where, _NUMBER.sub("#", finding.message)


def _change(before: Finding | None, after: Finding | None) -> Change:
    known = [finding for finding in (before, after) if finding is not None]
    return Change(known[0].code, _facts(before), _facts(after), known[0].where)


def _facts(finding: Finding | None) -> dict[str, Any] | None:
    if finding is None:
        return None
    return {
        "name": finding.name,
        "severity": finding.severity,
        "message": finding.message,
        "advice": finding.advice,
    }


def _words(change: Change) -> list[str]:
    """What tells changes at one place apart, whichever report comes first."""
    sides = [facts for facts in (change.before, change.after) if facts is not None]
    return [f"{change.name} {change.where}", *sorted(str(facts["message"]) for facts in sides)]
