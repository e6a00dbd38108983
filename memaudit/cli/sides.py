"""A number of one of two reports, and whether those of both were measured alike."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memaudit.cli.conditions import LAGS
from memaudit.cli.sought import places, shown
from memaudit.errors import clean
from memaudit.metrics import METRICS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memaudit.memory.result import Curve
    from memaudit.metrics import Number
    from memaudit.report import Report

#: The numbers of memory curves, and those of them that depend on epsilon.
OF_CURVES = tuple(metric.name for metric in METRICS if metric.query)
OF_EPSILON = ("horizon", "horizon_beyond")


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
    def least(self) -> float:
        """The smallest that the number can be; a horizon is a whole number of lags."""
        behind = self.endless and self.number is not None and self.number.metric == "horizon"
        return self.reach + 1.0 if behind else self.reach

    @property
    def endless(self) -> bool:
        """Whether it lies behind what was looked at."""
        return math.isinf(self.value) and math.isfinite(self.reach)

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


def unlike(old: Side, new: Side) -> str:
    """Why two numbers of curves are not comparable: other queries or settings; "" where they are.

    Curves are asked and not the settings: some queries have a normalization of their own.
    """
    number = new.number
    if number is None or number.metric not in OF_CURVES:
        return ""
    for one, other in ((old, new), (new, old)):
        lost = _asked(one.report).difference(_asked(other.report))
        if lost and number.query is None:
            return f"not measured in {other.word}: {', '.join(map(clean, sorted(lost)))}"
    names = ("epsilon", "normalization") if number.metric in OF_EPSILON else ("normalization",)
    before, after = _curves(old), _curves(new)
    for query in (query for query in before if query in after):
        for name in names:
            pair = [getattr(curves[query], name) for curves in (before, after)]
            if pair[0] != pair[1]:
                told = " -> ".join(clean(value) for value in pair)
                return f"measured with other settings: {name} {told}"
    return ""


def _asked(report: Report) -> set[str]:
    """The queries that were asked, as far as a file tells."""
    names = report.settings.get("queries")
    return {*report.memory, *(map(str, names) if isinstance(names, list | tuple) else ())}


def _curves(side: Side) -> Mapping[str, Curve]:
    """The curves that a number comes from."""
    number = side.number
    if number is None:
        return {}
    report = side.report
    curves = report.memory if number.layer is None else report.layers.get(number.layer, {})
    return {q: curve for q, curve in curves.items() if number.query in (None, q)}
