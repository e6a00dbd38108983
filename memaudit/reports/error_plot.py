"""Curves E(beta) in one picture: logarithmic both ways, a letter per curve."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from memaudit.reports.curve_plot import LABEL, Canvas

if TYPE_CHECKING:
    from collections.abc import Sequence

#: One letter per curve; where there are more of them it begins again.
MARKS = "abcdefghijklmnopqrstuvwxyz"
HEIGHT = 14
#: Errors so many times the size of the reference are not drawn: the rest would be squeezed.
ABOVE = 10.0
#: Errors further below the reference than this are not drawn.
DECADES = 8
#: A reference of this size is drawn at the edge of what a number can hold.
LARGEST = sys.float_info.max


def mark(number: int) -> str:
    """The letter of a curve, counted from 0."""
    return MARKS[number % len(MARKS)]


@dataclass(frozen=True, slots=True, eq=False)
class ErrorPlot:
    """The curves E(beta) over common betas, and the size of the reference they are held against."""

    betas: np.ndarray
    curves: Sequence[np.ndarray]
    scale: float


def error_plot(report: ErrorPlot, *, width: int = 72, ascii_only: bool = False) -> list[str]:
    """The picture of all curves: lines of `width` characters, dots at the reference's size.

    Letters are drawn in both kinds of terminal: dots of braille would not tell the curves apart.
    """
    # A canvas of letters, whatever the terminal shows.
    canvas = Canvas(width - LABEL - 1, HEIGHT, ascii_only=True)
    low, high = _decades(report)
    betas = report.betas[: _reached(report, high)]
    x = np.log10(betas)
    across = max(float(x[-1] - x[0]), 1e-9)
    columns = [(float(v) - float(x[0])) / across * (canvas.columns - 1) for v in x]
    for number, curve in enumerate(report.curves):
        rows = [_row(error, low, high, canvas.rows) for error in curve[: len(x)]]
        _draw(canvas, columns, rows, mark(number))
    if (line := _row(report.scale, low, high, canvas.rows)) is not None:
        for column in range(0, canvas.columns, 2):
            canvas.dot(column, round(line), ".")
    bar, corner, dash = ("|", "+", "-") if ascii_only else ("┤", "└", "─")
    labels = _labels(low, high)
    body = [label + bar + text for label, text in zip(labels, canvas.lines(), strict=True)]
    first, last = f"{betas[0]:.1e}", f"{betas[-1]:.1e}"
    gap = " " * max(canvas.width - len(first) - len(last), 1)
    margin = " " * LABEL
    return [*body, margin + corner + dash * canvas.width, f"{margin} {first}{gap}{last}"]


def _decades(report: ErrorPlot) -> tuple[float, float]:
    """The powers of ten that enclose the curves, as far as they are drawn."""
    errors = np.concatenate(list(report.curves))
    top = math.log10(min(report.scale * ABOVE, LARGEST)) if report.scale > 0 else 0.0
    seen = np.log10(errors[(errors > 0) & np.isfinite(errors)])
    seen = seen[(seen <= top) & (seen >= top - DECADES)]
    low = math.floor(seen.min()) if len(seen) else math.floor(top) - 1
    high = (
        math.ceil(max(float(seen.max()), math.log10(min(report.scale or 1.0, LARGEST))))
        if len(seen)
        else top
    )
    return float(low), float(max(high, low + 1))


def _reached(report: ErrorPlot, high: float) -> int:
    """How many betas there are until the last curve leaves the picture."""
    inside = np.stack(
        [np.isfinite(curve) & (curve <= _ten_to(high)) for curve in report.curves]
    ).any(0)
    return int(np.flatnonzero(inside)[-1]) + 1 if inside.any() else len(report.betas)


def _ten_to(power: float) -> float:
    """A power of ten, infinite where no number is as large."""
    return 10**power if power < math.log10(LARGEST) else math.inf


def _row(error: float, low: float, high: float, rows: int) -> float | None:
    """The row of an error, 0 on top; None above the picture, the bottom row below it."""
    if not np.isfinite(error) or error > _ten_to(high):
        return None
    power = math.log10(error) if error > 0 else low
    return (high - max(power, low)) / (high - low) * (rows - 1)


def _draw(canvas: Canvas, columns: list[float], rows: list[float | None], letter: str) -> None:
    """One curve, from beta to beta along straight lines; it ends where it leaves the picture."""
    for i, row in enumerate(rows):
        if row is None:
            break
        canvas.dot(round(columns[i]), round(row), letter)
        if not i or (before := rows[i - 1]) is None:
            continue
        steps = 1 + math.ceil(max(abs(columns[i] - columns[i - 1]), abs(row - before)))
        for step in range(1, steps):
            share = step / steps
            column = columns[i - 1] + share * (columns[i] - columns[i - 1])
            canvas.dot(round(column), round(before + share * (row - before)), letter)


def _labels(low: float, high: float) -> list[str]:
    labels = [" " * LABEL] * HEIGHT
    stride = max(1, math.ceil((high - low) / (HEIGHT - 1)))
    for power in range(int(high), int(low) - 1, -stride):
        share = (high - power) / (high - low)
        labels[round(share * (HEIGHT - 1))] = f"1e{power:+03d}".rjust(LABEL)
    return labels
