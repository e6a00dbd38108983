"""Where the rules about spectra look: recurrences by place, the nearest first."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from memaudit.results import Report, Spectrum


def margins(
    report: Report, wanted: Callable[[Spectrum], bool]
) -> Iterator[tuple[str, list[Spectrum]]]:
    """The places with at least one spectrum of that sort, the smallest margin first."""
    for where in dict.fromkeys(item.where for item in report.spectrum):
        found = [item for item in report.spectrum if item.where == where and wanted(item)]
        if found:
            yield where, sorted(found, key=lambda item: item.margin)


def time_scale(item: Spectrum) -> str:
    """The time scale of a spectrum in steps, in words."""
    return "infinite" if math.isinf(item.time_scale) else f"{item.time_scale:.4g} steps"
