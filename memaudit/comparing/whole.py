"""The few numbers of a whole model that tell better from worse: those that gates judge, too."""

from __future__ import annotations

import math
from itertools import chain
from typing import TYPE_CHECKING

from memaudit.metrics.curves import whole_numbers
from memaudit.metrics.layers import recurrent_numbers

if TYPE_CHECKING:
    from memaudit.metrics import Number
    from memaudit.report import Report

#: What is told of a whole model, in this order.
WHOLE = ("horizon", "half_life", "margin")

Fact = int | float | str | None


def whole_facts(report: Report) -> dict[str, Fact]:
    """Numbers by name; one that is only a bound, or lies beyond what was seen, is a word."""
    numbers = chain(whole_numbers(report), recurrent_numbers(report))
    found = {n.metric: _fact(n) for n in numbers if n.metric in WHOLE and n.layer is None}
    return {name: found.get(name) for name in WHOLE}


def _fact(number: Number) -> Fact:
    value = number.value
    if value is None or math.isnan(value):
        return None
    if math.isinf(value):
        if number.beyond is None:
            return value
        # A query that could not tell may have had a nearer end.
        return f"beyond {number.beyond:g}{' where it was seen' if number.lower else ''}"
    exact = int(value) if number.metric == "horizon" and value == int(value) else value
    if number.lower and number.higher:
        return f"about {_digits(exact)}"
    if number.lower or number.higher:
        return f"at {'most' if number.lower else 'least'} {_digits(exact)}"
    return exact


def _digits(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.4g}"
