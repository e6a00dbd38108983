"""The axis of lags below a picture, with the horizons of the curves on it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.text import Text

from memaudit.reports.curve_plot import LABEL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memaudit.reports.curve_plot import Scale
    from memaudit.reports.overlay import Line

#: Round numbers on a linear axis: so many at most.
TICKS = 6
NAME = "lag"


def lag_axis(
    scale: Scale, lines: Sequence[Line], width: int, *, ascii_only: bool = False
) -> list[Text]:
    """A line with ticks and the letters of the horizons, and the lags below it."""
    rule: list[tuple[str, str]] = [("-" if ascii_only else "─", "")] * width
    below = list(" " * width)
    shrink = width / max(scale.columns, 1)
    last = max(scale.last, scale.first + 1)
    _write(below, f"{last} {NAME}", width)
    for tick in ticks(scale):
        at = min(int(scale.column(tick) * shrink), width - 1)
        if _write(below, str(tick), at):
            rule[at] = ("+" if ascii_only else "┬", "")
    taken: set[int] = set()
    for line in lines:
        if line.horizon is None or not scale.first <= line.horizon <= scale.last:
            continue
        wanted = min(int(scale.column(line.horizon) * shrink), width - 1)
        free = [at for at in (*range(wanted, width), *range(wanted, -1, -1)) if at not in taken]
        rule[free[0]] = line.letter, f"bold {line.colour}"
        taken.add(free[0])
    margin = " " * LABEL
    drawn = Text(margin + ("+" if ascii_only else "└"))
    for mark, style in rule:
        drawn.append(mark, style)
    return [drawn, Text(f"{margin} {''.join(below)}".rstrip())]


def ticks(scale: Scale) -> list[int]:
    """Round lags inside the axis, the first one as it is."""
    start = max(scale.first, 1) if scale.powers else scale.first
    if scale.powers:
        powers = [10**k for k in range(int(math.log10(max(scale.last, 1))) + 1)]
        return [start, *(p for p in powers if start < p < scale.last)]
    rough = max((scale.last - scale.first) / TICKS, 1)
    power = 10 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    first = (start // step + 1) * step
    return [start, *range(first, scale.last, step)]


def _write(row: list[str], word: str, at: int) -> bool:
    """Put a word around a place where it stands free, and say whether it does."""
    start = min(max(at - (len(word) - 1) // 2, 0), len(row) - len(word))
    around = row[max(start - 1, 0) : start + len(word) + 1]
    if start < 0 or any(letter != " " for letter in around):
        return False
    row[start : start + len(word)] = word
    return True
