"""All curves of a report in one picture, told apart by colour and by letters on the lines."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from rich.text import Text

from memaudit.memory.curve import SIGNAL_OVER_FLOOR
from memaudit.reports.curve_plot import (
    BRAILLE,
    DOTS,
    FLOOR_DECADES,
    LABEL,
    LOWEST,
    Scale,
    power_labels,
    trace,
)
from memaudit.reports.lag_axis import lag_axis

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memaudit.memory.result import Curve

COLOURS = ("cyan", "yellow", "magenta", "green", "blue", "red")
#: A letter stands on every line once in so many columns.
EVERY = 24
Cell = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Line:
    """A curve as it is drawn: the cells that it goes through, and the dots in them."""

    letter: str
    colour: str
    horizon: int | None
    cells: dict[Cell, int]


def overlay(
    curves: Mapping[str, Curve], *, width: int, height: int, ascii_only: bool = False
) -> list[Text]:
    """The picture: `height` lines and an axis of two, or nothing where no curve can be drawn.

    Logarithmic lags where a curve falls like a power law, which is a straight line there. A curve
    ends where it sinks into its floor; the highest of the floors that are reached is dotted.
    """
    drawn = {query: heard(curve) for query, curve in curves.items()}
    drawn = {query: points for query, points in drawn.items() if len(points[0])}
    if not drawn:
        return []
    scale = _scale(curves, drawn, width - LABEL - 1, height, ascii_only=ascii_only)
    signs = letters(curves)
    lines = [
        Line(
            signs[query],
            COLOURS[list(curves).index(query) % len(COLOURS)],
            curves[query].horizon,
            _cells(scale, *points, ascii_only=ascii_only),
        )
        for query, points in drawn.items()
    ]
    grid = _composed(lines, ascii_only=ascii_only)
    level = floor(curves)
    if level is not None:
        _dotted(grid, scale, level, ascii_only=ascii_only)
    bar = "|" if ascii_only else "┤"
    labels = power_labels(scale, height)
    rows = [
        Text(label + bar).append_text(_row(grid, row, width - LABEL - 1))
        for row, label in enumerate(labels)
    ]
    return rows + lag_axis(scale, lines, width - LABEL - 1, ascii_only=ascii_only)


def heard(curve: Curve) -> tuple[np.ndarray, np.ndarray]:
    """Lags and values up to the first one after the last that stands clear of the floor."""
    values = np.asarray(curve.values, dtype=np.float64)
    lags = np.asarray(curve.lags)[: len(values)]
    lags, values = lags[np.isfinite(values)], values[np.isfinite(values)]
    clear = np.flatnonzero(values > SIGNAL_OVER_FLOOR * max(curve.floor, 0.0))
    end = clear[-1] + 2 if len(clear) else 0
    return lags[:end], values[:end]


def floor(curves: Mapping[str, Curve]) -> float | None:
    """The highest floor that a curve sinks into, unless it lies far below all that is heard."""
    drawn = {query: heard(curve)[1] for query, curve in curves.items()}
    sunk = [c.floor for query, c in curves.items() if 0 < len(drawn[query]) < len(c.values)]
    level = max(sunk, default=0.0)
    lowest = min((_lowest(c) for query, c in curves.items() if len(drawn[query])), default=0.0)
    return level if level > 0 and lowest < level * 10**FLOOR_DECADES else None


def _lowest(curve: Curve) -> float:
    """The smallest value that stands clear of the floor."""
    values = heard(curve)[1]
    return float(values[values > SIGNAL_OVER_FLOOR * max(curve.floor, 0.0)].min())


def letters(names: Mapping[str, object] | Sequence[str]) -> dict[str, str]:
    """A letter for every name: the first of its own that is free, else the first free digit."""
    taken: dict[str, str] = {}
    spare = [*"123456789abcdefghijklmnopqrstuvwxyz"]
    for name in names:
        own = [c for c in str(name).lower() if c.isascii() and c.isalpha()]
        free = [c for c in (*own, *spare) if c not in taken.values()]
        taken[name] = free[0] if free else "*"
    return taken


def _scale(
    curves: Mapping[str, Curve],
    drawn: Mapping[str, tuple[np.ndarray, np.ndarray]],
    width: int,
    height: int,
    *,
    ascii_only: bool,
) -> Scale:
    """The lags of all curves, and the powers of ten that enclose what is clear of the floors."""
    level = floor(curves)
    low = min(level or math.inf, *(_lowest(curves[query]) for query in drawn))
    bottom = max(math.floor(math.log10(low)), LOWEST)
    high = max(float(values.max()) for _, values in drawn.values())
    top = max(math.ceil(math.log10(high)), bottom + 1)
    lags = [np.asarray(curve.lags) for curve in curves.values() if len(curve.lags)]
    powers = any(curve.decay.kind == "polynomial" for curve in curves.values())
    return Scale(
        first=min(int(part[0]) for part in lags),
        last=max(int(part[-1]) for part in lags),
        low=bottom,
        high=top,
        columns=width * (1 if ascii_only else 2),
        rows=height * (1 if ascii_only else 4),
        powers=powers,
    )


def _cells(
    scale: Scale, lags: np.ndarray, values: np.ndarray, *, ascii_only: bool
) -> dict[Cell, int]:
    """The cells of a curve in the order in which it goes through them."""
    cells: dict[Cell, int] = {}
    for column, row in trace(scale, lags, values):
        if ascii_only:
            cells[column, row] = 1
        else:
            cell = column // 2, row // 4
            cells[cell] = cells.get(cell, 0) | DOTS[column % 2][row % 4]
    return cells


def _composed(lines: list[Line], *, ascii_only: bool) -> dict[Cell, tuple[str, str]]:
    """Letter and colour of every cell; where lines meet they take turns, column by column."""
    grid: dict[Cell, tuple[str, str]] = {}
    for place, line in enumerate(lines):
        for cell, bits in line.cells.items():
            if ascii_only:
                if cell not in grid or cell[0] % len(lines) == place:
                    grid[cell] = line.letter, line.colour
            else:
                before = ord(grid[cell][0]) - BRAILLE if cell in grid else 0
                grid[cell] = chr(BRAILLE + (before | bits)), line.colour
    if not ascii_only:
        for place, line in enumerate(lines):
            for cell in _signs(line, place * EVERY // len(lines) + 3):
                if ord(grid[cell][0]) >= BRAILLE:  # the letter of another line stays
                    grid[cell] = line.letter, f"bold {line.colour}"
    return grid


def _signs(line: Line, start: int) -> list[Cell]:
    """Where the letter of a line stands; one that is over before the first place has it midway."""
    found: dict[int, Cell] = {}
    for cell in line.cells:
        if cell[0] % EVERY == start % EVERY:
            found.setdefault(cell[0], cell)
    cells = list(line.cells)
    return list(found.values()) or [cells[len(cells) // 2]]


def _dotted(
    grid: dict[Cell, tuple[str, str]], scale: Scale, level: float, *, ascii_only: bool
) -> None:
    row = scale.row(level)
    cell_row = row if ascii_only else row // 4
    columns = scale.columns if ascii_only else scale.columns // 2
    mark = "." if ascii_only else chr(BRAILLE + DOTS[0][row % 4])
    for column in range(0, columns, 2):
        grid.setdefault((column, cell_row), (mark, "dim"))


def _row(grid: dict[Cell, tuple[str, str]], row: int, width: int) -> Text:
    made = Text()
    for column in range(width):
        made.append(*grid.get((column, row), (" ", "")))
    return made
