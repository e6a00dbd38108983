"""Any figure as text: dots of braille, or letters where there are none, with axes and a legend."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rich.text import Text

from memaudit.errors import clean
from memaudit.sections import Band, Line, Points
from memaudit.writers.scales import circle, drawable, is_empty, limits, share, ticks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from memaudit.sections import Figure, Mark

#: Bits of a braille cell by (column, row) of its 2 x 4 dots; the block starts at U+2800.
DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
BRAILLE = 0x2800
COLOURS = ("cyan", "yellow", "magenta", "green", "blue", "red")
#: Labels of the axis upwards have this width at least.
LABEL = 6
#: A letter stands on every line once in so many columns.
EVERY = 24
#: More series than these are drawn without letters, and not named below the picture.
NAMED = 12
#: So few points are drawn as letters: a dot would be lost on a line.
FEW = 12
#: Lines around a picture: axis, numbers and legend.
AROUND = 3
Cell = tuple[int, int]


@dataclass(slots=True)
class Canvas:
    """A grid of character cells: 2 x 4 dots each in braille, one letter each in ASCII."""

    width: int
    height: int
    ascii_only: bool
    cells: dict[Cell, tuple[str, str]] = field(default_factory=dict)

    @property
    def columns(self) -> int:
        """Dots side by side."""
        return self.width * (1 if self.ascii_only else 2)

    @property
    def rows(self) -> int:
        """Dots on top of each other."""
        return self.height * (1 if self.ascii_only else 4)

    def gathered(self, dots: Iterable[Cell]) -> dict[Cell, int]:
        """The cells that dots fall into, with the bits of braille."""
        found: dict[Cell, int] = {}
        for column, row in dots:
            if 0 <= column < self.columns and 0 <= row < self.rows:
                if self.ascii_only:
                    found[column, row] = 0
                else:
                    cell = column // 2, row // 4
                    found[cell] = found.get(cell, 0) | DOTS[column % 2][row % 4]
        return found

    def put(self, cells: dict[Cell, int], sign: str, style: str) -> None:
        """Draw cells below what is there: in braille dots are joined, the first colour stays."""
        for cell, bits in cells.items():
            here = self.cells.get(cell)
            if self.ascii_only:
                self.cells.setdefault(cell, (sign, style))
            elif here is None:
                self.cells[cell] = chr(BRAILLE + bits), style
            elif ord(here[0]) >= BRAILLE:
                self.cells[cell] = chr(ord(here[0]) | bits), here[1]

    def line(self, row: int) -> Text:
        """One line of the picture."""
        made = Text()
        for column in range(self.width):
            made.append(*self.cells.get((column, row), (" ", "")))
        return made


def plot(figure: Figure, *, width: int = 72, height: int = 12, ascii_only: bool = False) -> Text:
    """The picture: `height` lines, an axis of two, and the legend, `width` characters wide.

    Series have a colour and a letter each, which stands on their lines. Marks are dotted; one that
    belongs to a series stands on the axis as its letter. Spans are not drawn, and dashed lines only
    where there are no others.
    """
    shown = [series for series in figure.series if series.shown]
    solid = [s for s in shown if not (isinstance(s, Line) and s.dashed)]
    shown = solid or shown
    figure = replace(figure, series=tuple(shown))
    if is_empty(figure):
        return Text("(nothing to draw)")
    across, upward = limits(figure)
    labels = _labels(upward, height, log=figure.y.log)
    margin = max(LABEL, *(len(label) for label in labels.values()))
    room = max(width - margin - 1, 10)
    if figure.square:  # a cell is about twice as high as it is wide
        room = min(room, 2 * height)
    canvas = Canvas(room, height, ascii_only)
    letters = _letters([series.name for series in shown])
    colours = {s.name: COLOURS[k % len(COLOURS)] for k, s in enumerate(shown)}

    def at(x: float, y: float) -> Cell:
        column = share(x, across, log=figure.x.log) * (canvas.columns - 1)
        row = (1.0 - share(y, upward, log=figure.y.log)) * (canvas.rows - 1)
        return round(column), min(max(round(row), 0), canvas.rows - 1)

    drawn = []
    low = upward[0] * (1 - 1e-9) if figure.y.log else -math.inf  # what is deeper is cut off
    for series in shown:
        dots: list[Cell] = []
        for x, y in drawable(figure, series):
            cells = [
                at(a, b) if b >= low else None for a, b in zip(x.tolist(), y.tolist(), strict=True)
            ]
            joined = isinstance(series, Line | Band)
            dots += _joined(cells) if joined else [c for c in cells if c is not None]
        if isinstance(series, Band):
            dots = [dot for dot in dots if dot[0] % 4 < 2]
        drawn.append((series, canvas.gathered(dots)))
    if len(drawn) <= NAMED:
        for place, (series, cells) in enumerate(reversed(drawn)):
            if isinstance(series, Points) and len(cells) <= FEW:
                lettered = list(cells)
            else:
                lettered = _lettered(cells, place, len(drawn)) if isinstance(series, Line) else []
            for cell in lettered:
                sign = letters[series.name], f"bold {colours[series.name]}"
                canvas.cells.setdefault(cell, sign)
    for series, cells in drawn:
        canvas.put(cells, letters[series.name], colours[series.name])
    for mark in figure.marks:
        canvas.put(canvas.gathered(_marked(mark, canvas, at, upward)), ".", "dim")
    bar, corner = ("|", "+") if ascii_only else ("┤", "└")
    body = [
        Text(labels.get(row, "").rjust(margin) + bar).append_text(canvas.line(row))
        for row in range(height)
    ]
    own = [m for m in figure.marks if m.x is not None and m.series in letters]
    rule, below = _below(figure, across, own, letters, colours, room, ascii_only=ascii_only)
    body += [Text(" " * margin + corner).append_text(rule), Text(" " * (margin + 1) + below)]
    legend = _legend(figure, [s.name for s in shown], letters, colours)
    picture = Text("\n").join([*body, legend] if legend.plain else body)
    picture.no_wrap, picture.overflow = True, "ignore"
    return picture


def _letters(names: list[str]) -> dict[str, str]:
    """A letter for every name: the first of its own that is free, else the first free sign."""
    taken: dict[str, str] = {}
    for name in names:
        own = [c for c in name.lower() if c.isascii() and c.isalpha()]
        free = [c for c in (*own, *"123456789abcdefghijklmnopqrstuvwxyz")]
        taken[name] = next((c for c in free if c not in taken.values()), "*")
    return taken


def _joined(cells: list[Cell | None]) -> Iterator[Cell]:
    """The dots along straight lines from point to point; None is a gap."""
    before: Cell | None = None
    for cell in cells:
        if cell is not None:
            a, b = before or cell, cell
            steps = max(abs(b[0] - a[0]), abs(b[1] - a[1]), 1)
            for step in range(steps + 1):
                part = step / steps
                yield round(a[0] + part * (b[0] - a[0])), round(a[1] + part * (b[1] - a[1]))
        before = cell


def _lettered(cells: dict[Cell, int], place: int, count: int) -> list[Cell]:
    """The cells that have the letter of a line: about one in `EVERY` columns, another per line."""
    found: dict[int, Cell] = {}
    offset = 3 + place * EVERY // max(count, 1)
    for cell in sorted(cells):
        turn, rest = divmod(cell[0] - offset, EVERY)
        if turn >= 0 and rest < 3:
            found.setdefault(turn, cell)
    middle = sorted(cells)[len(cells) // 2 : len(cells) // 2 + 1]
    return list(found.values()) or middle


def _marked(
    mark: Mark,
    canvas: Canvas,
    at: Callable[[float, float], Cell],
    upward: tuple[float, float],
) -> Iterator[Cell]:
    if mark.radius is not None:
        yield from (at(x, y) for x, y in circle(mark.radius))
    elif mark.y is not None and upward[0] <= mark.y <= upward[1]:
        row = at(1.0, mark.y)[1]
        yield from ((column, row) for column in range(0, canvas.columns, 4))
    elif mark.x is not None and not mark.series:
        column = at(mark.x, upward[0])[0]
        yield from ((column, row) for row in range(0, canvas.rows, 2))


def _labels(span: tuple[float, float], height: int, *, log: bool) -> dict[int, str]:
    """A round number beside the line that it falls into, spaced so that no two meet."""
    labels: dict[int, str] = {}
    for tick in ticks(*span, log=log, most=height):
        row = round((1.0 - share(tick, span, log=log)) * (height - 1))
        power = log and span[1] / span[0] >= 100
        labels[row] = f"1e{round(math.log10(tick)):+03d}" if power else f"{tick:.4g}"
    return labels


def _below(
    figure: Figure,
    span: tuple[float, float],
    marks: list[Mark],
    letters: dict[str, str],
    colours: dict[str, str],
    width: int,
    *,
    ascii_only: bool,
) -> tuple[Text, str]:
    """A line with ticks and the letters of marks, and the numbers below it."""
    log = figure.x.log
    rule: list[tuple[str, str]] = [("-" if ascii_only else "─", "")] * width
    below = list(" " * width)
    name = clean(figure.x.label, limit=24)
    if not _write(below, f"{span[1]:.6g} {name}", width):
        _write(below, f"{span[1]:.6g}", width)
    for tick in (span[0], *ticks(*span, log=log, most=6)):
        place = min(round(share(tick, span, log=log) * (width - 1)), width - 1)
        if _write(below, f"{tick:.6g}", place):
            rule[place] = "+" if ascii_only else "┬", ""
    taken: set[int] = set()
    for mark in marks:
        if mark.x is None or not span[0] <= mark.x <= span[1]:
            continue
        wanted = min(round(share(mark.x, span, log=log) * (width - 1)), width - 1)
        free = [p for p in (*range(wanted, width), *range(wanted, -1, -1)) if p not in taken]
        if free:
            rule[free[0]] = letters[mark.series], f"bold {colours[mark.series]}"
            taken.add(free[0])
    line = Text()
    for sign, style in rule:
        line.append(sign, style)
    return line, "".join(below).rstrip()


def _write(row: list[str], word: str, at: int) -> bool:
    """Put a word around a place where it stands free, and say whether it does."""
    start = min(max(at - (len(word) - 1) // 2, 0), len(row) - len(word))
    if start < 0 or any(letter != " " for letter in row[max(start - 1, 0) : start + len(word) + 1]):
        return False
    row[start : start + len(word)] = word
    return True


def _legend(
    figure: Figure, names: list[str], letters: dict[str, str], colours: dict[str, str]
) -> Text:
    """The letters and what they stand for, then what the marks are."""
    legend = Text(f"{clean(figure.y.label, limit=40)}: " if figure.y.label else "")
    named = names if len(names) <= NAMED else []
    for place, name in enumerate(named):
        legend.append(", " if place else "")
        legend.append(letters[name], f"bold {colours[name]}").append(f" {clean(name, limit=24)}")
    if not named:
        legend.append(f"{len(names)} series")
    on_axis = [m for m in figure.marks if m.x is not None and m.series]
    dotted = [m for m in figure.marks if m.span is None and m not in on_axis]
    for words, marks in (("on the axis", on_axis), ("dotted", dotted)):
        # Many marks of one sort have a number each: "horizon 139".
        kinds = dict.fromkeys(
            clean(re.sub(r"[\s\d.,]+$", "", m.label), limit=40) or clean(m.label, limit=40)
            for m in marks
        )
        labels = ", ".join(kind if len(marks) > 1 else clean(marks[0].label) for kind in kinds)
        legend.append(f"; {words}: {labels}" if labels else "")
    return legend
