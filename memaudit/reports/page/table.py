"""A table that a screen reader can follow: a caption, and headers with their scope."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memaudit.reports.page.markup import Markup, tag

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Cells that stand to the right: numbers, alone or before something in brackets.
_NUMBER = re.compile(r"(> |x|[-+])?[\d.,]+(e[-+]?\d+)?( \[.*\]| %| s)?|-|\?|infinite|none")
#: A table of more rows scrolls.
LONG = 14
#: Longer cells are wrapped, shorter ones are not.
WORDY = 32


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of words under a caption; the first cell of a row names it."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    #: Data tables are narrow and many; tables of words wrap.
    dense: bool = False
    #: The heading above says what the caption says.
    quiet: bool = False
    #: Everything stands to the left.
    facts: bool = False

    def markup(self) -> Markup:
        """The table in a box that scrolls sideways, reachable by keyboard."""
        kept = [k for k in range(len(self.columns)) if self.dense or k == 0 or self._told(k)]
        right = {k for k in kept if k and not self.facts and self._numbers(k)}
        heads = [
            tag("th", self.columns[k], scope="col", class_="n" if k in right else "s") for k in kept
        ]
        body = [
            tag("tr", [_cell(row[k], first=k == 0, right=k in right) for k in kept])
            for row in self.rows
        ]
        said = tag("caption", tag("span", self.caption, class_="quiet" if self.quiet else None))
        table = tag("table", said, tag("thead", tag("tr", heads)), tag("tbody", body))
        kind = "scroll dense" if self.dense else "scroll facts-table" if self.facts else "scroll"
        kind += " long" if len(self.rows) > LONG and not self.dense else ""
        return tag("div", table, class_=kind, tabindex="0", role="region", aria_label=self.caption)

    def _told(self, column: int) -> bool:
        """Whether a column has anything in it."""
        return any(row[column] not in ("", "-") for row in self.rows)

    def _numbers(self, column: int) -> bool:
        return all(
            row[column] == "" or _NUMBER.fullmatch(str(row[column])) is not None
            for row in self.rows
        )


def number(value: float | None, digits: int = 6) -> str:
    """A number of a report in a cell."""
    if value is None:
        return "-"
    return "infinite" if value == float("inf") else f"{value:.{digits}g}"


def _cell(cell: object, *, first: bool, right: bool) -> Markup:
    """Always with a class: what a name looks like must not change the structure of a page."""
    wordy = len(str(cell)) > WORDY and not isinstance(cell, Markup)
    kind = "n" if right else "w" if wordy else "s"
    return tag("th", cell, scope="row", class_=kind) if first else tag("td", cell, class_=kind)
