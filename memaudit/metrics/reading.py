"""Reading the numbers out of a report."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from memaudit.metrics.curves import layer_numbers, query_numbers, whole_numbers
from memaudit.metrics.layers import known, moved_numbers, recurrent_numbers
from memaudit.metrics.names import PREFIX
from memaudit.metrics.number import Number
from memaudit.report import SEVERITIES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memaudit.report import Report


def metrics(report: Report) -> dict[str, float]:
    """The numbers as a tracker takes them: finite ones, under the prefix."""
    found = measured(report)
    return {PREFIX + name: value for name, value in found.items() if math.isfinite(value)}


def measured(report: Report) -> dict[str, float]:
    """Every number that was measured, by its name; what lies beyond all reach is infinite."""
    named = named_numbers(report)
    return {name: float(n.value) for name, n in named if n.value is not None}


def named_numbers(report: Report) -> list[tuple[str, Number]]:
    """Every number by its name; of two layers with one name the second gets another.

    A number that was not measured has the name that it would have.
    """
    taken: set[str] = set()
    named: list[tuple[str, Number]] = []
    for number in _numbers(report):
        key = name = number.key
        count = 2
        if not known(number.value):
            named.append((name, replace(number, value=None)))
            continue
        while name in taken:
            name, count = f"{key} ({count})", count + 1
        taken.add(name)
        named.append((name, number))
    return named


def _numbers(report: Report) -> Iterator[Number]:
    yield from whole_numbers(report)
    yield from query_numbers(report)
    yield from layer_numbers(report)
    yield from recurrent_numbers(report)
    yield from moved_numbers(report)
    yield from _judged(report)


def _judged(report: Report) -> Iterator[Number]:
    names = dict.fromkeys(a.name for a in report.assumptions)
    for name in names:
        same = [a for a in report.assumptions if a.name == name]
        told = [a.holds for a in same if a.holds is not None]
        lower = tuple(a.where or "the model" for a in same if a.holds is None)
        value = float(all(told)) if told else None
        yield Number("assumptions", value, inner=name, lower=lower)
    for severity in reversed(SEVERITIES):
        count = sum(f.severity == severity for f in report.findings)
        yield Number("findings", float(count), inner=severity)
    yield Number("coverage", report.subject.coverage)
    yield Number("complete", float(report.complete))
    yield Number("parameters", report.subject.parameters)
