"""A memory curve as text: logarithmic height over linear lags, in braille or in ASCII."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memaudit.memory.result import Curve

#: Bits of a braille cell by (column, row) of its 2 x 4 dots; the block starts at U+2800.
DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
BRAILLE = 0x2800
LABEL = 6
#: A floor further than this below the lowest value is not drawn: the curve would be squeezed.
FLOOR_DECADES = 2.0
#: The lowest power of ten that is drawn; subnormal numbers below it are noise.
LOWEST = -300


@dataclass(frozen=True, slots=True)
class Scale:
    """From lags and values to dots: logarithmic in the value, linear in the lag unless `powers`.

    A logarithmic axis begins at lag 1; lag 0 stands there, too.
    """

    first: int
    last: int
    low: int
    high: int
    columns: int
    rows: int
    powers: bool = False

    def column(self, lag: float) -> int:
        """The dot column of a lag."""
        if self.powers:
            start = max(self.first, 1)
            end = max(self.last, start + 1)
            share = math.log(max(lag, start) / start) / math.log(end / start)
            return round(min(share, 1.0) * (self.columns - 1))
        width = max(self.last - self.first, 1)
        return round((lag - self.first) / width * (self.columns - 1))

    def row(self, value: float) -> int:
        """The dot row of a value, 0 on top; what lies below the scale stands on its bottom."""
        power = math.log10(value) if value > 0 else -math.inf
        share = (self.high - min(max(power, self.low), self.high)) / (self.high - self.low)
        return round(share * (self.rows - 1))


@dataclass(slots=True)
class Canvas:
    """A grid of character cells, each of 2 x 4 dots in braille or one letter in ASCII."""

    width: int
    height: int
    ascii_only: bool
    cells: list[list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.cells = [[0] * self.width for _ in range(self.height)]

    @property
    def columns(self) -> int:
        """Dots side by side."""
        return self.width * (1 if self.ascii_only else 2)

    @property
    def rows(self) -> int:
        """Dots on top of each other."""
        return self.height * (1 if self.ascii_only else 4)

    def dot(self, column: int, row: int, mark: str) -> None:
        """Set one dot; in ASCII the first mark that comes to a cell stays."""
        if self.ascii_only:
            self.cells[row][column] = self.cells[row][column] or ord(mark)
        else:
            self.cells[row // 4][column // 2] |= DOTS[column % 2][row % 4]

    def lines(self) -> list[str]:
        """The picture, line by line."""
        start = 0 if self.ascii_only else BRAILLE
        return ["".join(chr(start + cell) if cell else " " for cell in row) for row in self.cells]


def plot(curve: Curve, *, width: int = 60, height: int = 8, ascii_only: bool = False) -> list[str]:
    """The picture of a curve: `height` lines and an axis of two, all `width` characters wide.

    The floor is a dotted line where it is near enough, the horizon a dotted column.
    """
    lags, values = _points(curve)
    if not len(lags):
        return ["(no lag was measured)".ljust(width)]
    if not (values > 0).any():
        return ["(zero at every lag)".ljust(width)]
    canvas = Canvas(width - LABEL - 1, height, ascii_only)
    low, high = _decades(values, curve.floor if floor_is_drawn(curve) else None)
    scale = Scale(int(lags[0]), int(lags[-1]), low, high, canvas.columns, canvas.rows)
    for column, row in trace(scale, lags, values):
        canvas.dot(column, row, "*")
    if floor_is_drawn(curve):
        for column in range(0, canvas.columns, 1 if ascii_only else 4):
            canvas.dot(column, scale.row(curve.floor), ".")
    if curve.horizon is not None and scale.first <= curve.horizon <= scale.last:
        for row in range(0, canvas.rows, 1 if ascii_only else 2):
            canvas.dot(scale.column(curve.horizon), row, ":")
    labels = power_labels(scale, height)
    bar = "|" if ascii_only else "┤"
    body = [label + bar + line for label, line in zip(labels, canvas.lines(), strict=True)]
    return body + _axis(curve, scale, canvas.width, ascii_only=ascii_only)


def floor_is_drawn(curve: Curve) -> bool:
    """Whether the floor is reached by the curve, or near enough to be shown."""
    _, values = _points(curve)
    if not (values > 0).any() or not curve.floor > 0:
        return False
    low = math.log10(_seen(values, curve.floor).min())
    return bool((values <= curve.floor).any()) or low - math.log10(curve.floor) < FLOOR_DECADES


def _seen(values: np.ndarray, floor: float) -> np.ndarray:
    above = values[values > max(floor, 0.0)]
    return above if len(above) else values[values > 0]


def _points(curve: Curve) -> tuple[np.ndarray, np.ndarray]:
    values = np.asarray(curve.values, dtype=np.float64)
    lags = np.asarray(curve.lags)[: len(values)]
    finite = np.isfinite(values)
    return lags[finite], values[finite]


def _decades(values: np.ndarray, floor: float | None) -> tuple[int, int]:
    """The powers of ten that enclose the curve, and the floor when it is drawn."""
    low, high = _seen(values, floor or 0.0).min(), values.max()
    if floor is not None:
        low, high = min(low, floor), max(high, floor)
    bottom = max(math.floor(math.log10(low)), LOWEST)
    return bottom, max(math.ceil(math.log10(high)), bottom + 1)


def trace(scale: Scale, lags: np.ndarray, values: np.ndarray) -> Iterator[tuple[int, int]]:
    """The dots of a curve from left to right, column and row, without gaps."""
    columns = [scale.column(float(lag)) for lag in lags]
    rows = [scale.row(float(value)) for value in values]
    yield columns[0], rows[0]
    for i in range(1, len(columns)):
        steps = max(abs(columns[i] - columns[i - 1]), abs(rows[i] - rows[i - 1]), 1)
        for step in range(1, steps + 1):
            share = step / steps
            column = columns[i - 1] + share * (columns[i] - columns[i - 1])
            row = rows[i - 1] + share * (rows[i] - rows[i - 1])
            yield round(column), round(row)


def power_labels(scale: Scale, height: int) -> list[str]:
    """A power of ten beside the line it falls into, spaced so that no two meet."""
    labels = [" " * LABEL] * height
    stride = max(1, math.ceil((scale.high - scale.low) / max(height - 1, 1)))
    per_line = scale.rows // height
    for power in range(scale.high, scale.low - 1, -stride):
        share = (scale.high - power) / (scale.high - scale.low)
        labels[round(share * (scale.rows - 1)) // per_line] = f"1e{power:+03d}".rjust(LABEL)
    return labels


def _axis(curve: Curve, scale: Scale, width: int, *, ascii_only: bool) -> list[str]:
    line = ["-" if ascii_only else "─"] * width
    first, last = str(scale.first), str(scale.last) if scale.last > scale.first else ""
    text = list(first + " " * (width - len(first) - len(last)) + last)
    if curve.horizon is not None and scale.first <= curve.horizon <= scale.last:
        at = scale.column(curve.horizon) * width // (scale.columns or 1)
        line[at] = "^" if ascii_only else "┴"
        mark = f"horizon {curve.horizon}"
        free = range(len(first) + 1, width - len(last) - len(mark))
        if len(free):
            start = min(max(at - len(mark) // 2, free[0]), free[-1])
            text[start : start + len(mark)] = mark
    corner = "+" if ascii_only else "└"
    margin = " " * LABEL
    return [margin + corner + "".join(line), margin + " " + "".join(text)]
