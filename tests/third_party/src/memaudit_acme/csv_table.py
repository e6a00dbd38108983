"""The curves as comma-separated values, one line for every lag."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from memaudit.errors import clean
from memaudit.interfaces import AbstractReportFormat
from memaudit.memory.result import Curve
from memaudit.report import Report

COLUMNS = ("complete", "where", "query", "kind", "status", "lag", "value", "median")


@dataclass(frozen=True, slots=True)
class CsvTable(AbstractReportFormat):
    """Every lag of every curve on a line of its own; a curve without lags keeps its verdict."""

    name: ClassVar[str] = "csv"
    summary: ClassVar[str] = "every lag of every curve, as comma-separated values"
    suffix: ClassVar[str] = ".csv"

    def render(self, report: Report) -> str:
        sheet = io.StringIO()
        writer = csv.writer(sheet, lineterminator="\n")
        writer.writerow(COLUMNS)
        for where, curves in ({"": report.memory} | report.layers).items():
            for name, curve in curves.items():
                start = [str(report.complete).lower(), _cell(where), _cell(name)]
                writer.writerows(start + row for row in _rows(curve))
        return sheet.getvalue()


def _rows(curve: Curve) -> Iterator[list[Any]]:
    verdict = [curve.decay.kind, curve.status.name.lower()]
    if len(curve.lags) == 0:
        yield [*verdict, "", "", ""]
    for lag, value, median in zip(curve.lags, curve.values, curve.median, strict=True):
        yield [*verdict, int(lag), repr(float(value)), repr(float(median))]


def _cell(text: str) -> str:
    """Foreign text without control characters; a spreadsheet takes =, +, - and @ for formulas."""
    safe = clean(text)
    return f"'{safe}" if safe[:1] in ("=", "+", "-", "@") else safe
