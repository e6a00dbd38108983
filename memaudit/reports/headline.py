"""How long the model remembers, in one number: the horizon that metrics and gates have, too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memaudit.memory.curve import UNREAD
from memaudit.memory.curve import informative as telling
from memaudit.metrics.curves import whole_holders
from memaudit.reports import wording

if TYPE_CHECKING:
    from memaudit.memory.result import Curve
    from memaudit.report import Report


@dataclass(frozen=True, slots=True)
class Headline:
    """The curve whose horizon is that of the model, and the one that reaches farthest.

    `farthest` is the query that the model remembers longer under, "" when there is none.
    """

    query: str
    curve: Curve
    farthest: str = ""
    lags: str = ""

    @property
    def whence(self) -> str:
        """The query, and what another one says; the words are not escaped."""
        if not self.farthest:
            return f"query {self.query}"
        return f"query {self.query}, the shortest; under {self.farthest} {self.lags}"


def headline(report: Report) -> Headline | None:
    """What stands first in every report; None when no curve could be judged."""
    curves = telling(report.memory, baseline=report.settings.get("baseline", "zero"))
    known = {q: c for q, c in curves.items() if c.status not in UNREAD}
    if not known:
        return None
    held = whole_holders(report).get("horizon")
    query = held[0] if held is not None and held[0] in known else next(iter(known))
    far = max(known, key=lambda name: known[name].extent)
    if known[far].extent == known[query].extent:
        return Headline(query, known[query])
    return Headline(query, known[query], far, _count(known[far]))


def remembered(curve: Curve) -> str:
    """`139 steps`, `more than 512 steps`; "" where no number can be told."""
    lags = wording.horizon(curve)
    if lags in (wording.NOTHING, wording.UNKNOWN):
        return ""
    count = lags.replace("> ", "more than ")
    return f"{count} step{'' if count == '1' else 's'}"


def memory_told(report: Report) -> str:
    """`132 steps (query impulse)`; "" where no number can be told. The words are not escaped."""
    found = headline(report)
    lags = "" if found is None else remembered(found.curve)
    return f"{lags} ({found.whence})" if found is not None and lags else ""


def _count(curve: Curve) -> str:
    return remembered(curve) or wording.HIDDEN
