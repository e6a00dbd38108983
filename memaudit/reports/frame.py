"""A report as a pandas table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from memaudit.metrics.rows import columns, rows

if TYPE_CHECKING:
    from memaudit.report import Report

#: Integers that may be missing stay integers; a float that is missing is NaN.
DTYPES = {str: "string", int: "Int64", float: "float64"}


def frame(report: Report) -> pd.DataFrame:
    """The rows of a report, with the same columns and types whatever was measured."""
    listed = rows(report)
    return pd.DataFrame(
        {
            name: pd.Series([row[name] for row in listed], dtype=DTYPES[kind])  # type: ignore[call-overload]
            for name, kind in columns(report).items()
        }
    )
