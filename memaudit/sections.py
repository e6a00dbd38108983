"""What to show of a result, as plain data: no colours, no markup, no widths.

A `Section` has a line for a summary, texts, tables and figures. Numbers in tables stay numbers
until a writer prints them. A writer draws any section and knows no capability; the comparison of
two reports pairs the rows of tables by their key columns and the series of figures by their names.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memaudit.errors import clean

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np

    from memaudit.report import Finding, GateResult


@dataclass(frozen=True, slots=True)
class Beyond:
    """A number that lies beyond how far was looked: more than `value`."""

    value: float

    def __str__(self) -> str:
        return f"> {self.value:g}"


#: What a cell of a table may hold; None is shown as "-".
Cell = str | int | float | bool | Beyond | None


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table; rows of two reports are paired by the key columns.

    `format` is the specification of numbers, such as ".2e"; four significant digits without one.
    `brief` columns stay when the table has little room. `better` is "more" or "less" where a change
    is good or bad. `help` says what the column means, in a few words.
    """

    name: str
    key: bool = False
    format: str = ".4g"
    brief: bool = True
    better: str = ""
    help: str = ""

    def text(self, cell: Cell) -> str:
        """A cell as it is printed."""
        import numpy as np

        if cell is None:
            return "-"
        if isinstance(cell, bool):
            return "yes" if cell else "no"
        if isinstance(cell, Beyond):
            return f"> {format(cell.value, self.format)}"
        if isinstance(cell, int | float | np.number):
            if math.isinf(cell):
                return "infinite" if cell > 0 else "-infinite"
            whole = isinstance(cell, int | np.integer)
            return f"{cell:,}" if whole and self.format == ".4g" else format(cell, self.format)
        return str(cell)


@dataclass(frozen=True, slots=True)
class Table:
    """Columns and rows; `notes` explain the columns below the table."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        for row in self.rows:
            if len(row) != len(names):
                raise ValueError(f"a row of {len(row)} cells stands under the columns {names}")

    def keys(self) -> list[tuple[Cell, ...]]:
        """The cells of the key columns, row by row."""
        places = [i for i, column in enumerate(self.columns) if column.key]
        return [tuple(row[i] for i in places) for row in self.rows]

    def texts(self) -> list[list[str]]:
        """Every cell as it is printed, row by row."""
        return [[c.text(v) for c, v in zip(self.columns, row, strict=True)] for row in self.rows]


@dataclass(frozen=True, slots=True)
class Axis:
    """What is drawn along one side of a figure."""

    label: str
    log: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """A curve through points; `shown` False leaves it to the reader to switch it on."""

    name: str
    x: np.ndarray
    y: np.ndarray
    dashed: bool = False
    shown: bool = True

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            fact = f"{len(self.x)} places and {len(self.y)} values"
            raise ValueError(f"the curve {self.name!r} has {fact}")


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Points that no line joins, with a label each where there are any."""

    name: str
    x: np.ndarray
    y: np.ndarray
    labels: tuple[str, ...] = ()
    shown: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Band:
    """The area between two curves."""

    name: str
    x: np.ndarray
    low: np.ndarray
    high: np.ndarray
    shown: bool = True


@dataclass(frozen=True, slots=True)
class Mark:
    """A straight line across a figure, a span of x, or a circle around 0, with its label.

    Exactly one of `x`, `y`, `span` and `radius` is given. `series` names the curve it belongs to.
    """

    label: str
    x: float | None = None
    y: float | None = None
    span: tuple[float, float] | None = None
    radius: float | None = None
    series: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Figure:
    """A picture as data; `square` gives both axes one scale, as a complex plane needs."""

    title: str
    x: Axis
    y: Axis
    series: tuple[Line | Points | Band, ...]
    marks: tuple[Mark, ...] = ()
    caption: str = ""
    square: bool = False


#: Of a host so many parts are drawn.
MOST_FIGURES = 8


def perturbation_figure(
    ball: str,
    norm: str,
    where: str,
    *,
    series: tuple[Line | Points | Band, ...],
    marks: tuple[Mark, ...] = (),
    caption: str = "",
) -> Figure:
    """Errors over the size of a move of weights; what has the same title is drawn into one."""
    place = f", {clean(where)}" if where else ""
    return Figure(
        f"E(beta), {clean(ball)} ball, {clean(norm)} norm{place}",
        Axis("size of the move, beta", log=True),
        Axis("error E(beta)", log=True),
        series,
        marks,
        caption,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Section:
    """What one result has to show.

    `headline` is a sentence for the top of a report, `under` one for the line below it, `line` the
    one line of a summary. `text` are paragraphs. The first section with a headline and a figure
    shows that figure and its first table in a summary, too. `detail` sections are for a whole
    report only, never for a summary or a card.
    """

    title: str
    line: str = ""
    headline: str = ""
    text: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    detail: bool = False
    under: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Document:
    """All that a writer for people draws, of a report, a comparison, a family or a retrofit.

    `facts` are pairs of words about what was looked at, `warnings` stand above everything, `footer`
    has the settings and versions, `command` repeats the work. `findings` is None where nothing is
    judged, as in a comparison.
    """

    title: str
    facts: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()
    findings: tuple[Finding, ...] | None = ()
    gates: tuple[GateResult, ...] = ()
    footer: tuple[str, ...] = ()
    command: str = ""

    @property
    def headlines(self) -> list[str]:
        """The sentences for the top, in the order of the sections."""
        lines = ((section.headline, section.under) for section in self.sections)
        return [line for pair in lines for line in pair if line]


def figures_joined(sections: Iterable[Section]) -> list[Section]:
    """The same sections; a figure that has the title of an earlier one is drawn into that.

    So results that share axes, such as E(beta) and the number formats on it, make one picture.
    """
    found = list(sections)
    titled: dict[str, Figure] = {}
    for figure in (figure for section in found for figure in section.figures):
        first = titled.get(figure.title)
        titled[figure.title] = figure if first is None else _drawn_into(first, figure)

    def own(section: Section) -> tuple[Figure, ...]:
        return tuple(made for f in section.figures if (made := titled.pop(f.title, None)))

    return [replace(section, figures=own(section)) for section in found]


def _drawn_into(first: Figure, later: Figure) -> Figure:
    return replace(
        first,
        series=(*first.series, *later.series),
        marks=(*first.marks, *later.marks),
        caption=" ".join(filter(None, (first.caption, later.caption))),
    )
