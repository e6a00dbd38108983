"""The tables of the terminal report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.box import ASCII2, SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from memaudit.errors import clean
from memaudit.reports import wording

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memaudit.memory.result import Assumption, Curve
    from memaudit.report import Report

#: From this width on a cell needs no second line.
WIDE = 110
#: From this width on there is room for two spaces between the columns of the wide table.
ROOMY = 124
NUMBERS = (
    *("conf.", "half-life", "horizon", "floor", "residual", "tolerance"),
    *("measured", "difference"),
)
COLOURS = {
    "growing": "red",
    "persistent": "yellow",
    "undetermined": "dim",
    "fails": "yellow",
    "not measured": "dim",
}


def table(*columns: str, ascii_only: bool, tight: bool = False) -> Table:
    """An empty table in the style of the report; numbers stand to the right."""
    made = Table(
        box=ASCII2 if ascii_only else SIMPLE_HEAD,
        padding=(0, 0 if tight else 1, 0, 0),
        pad_edge=False,
        show_edge=False,
        header_style="bold",
    )
    for column in columns:
        right = column in NUMBERS
        made.add_column(column, justify="right" if right else "left", overflow="fold")
    return made


def coloured(word: str) -> Text:
    """A word in the colour that it has everywhere in the report."""
    return Text(word, style=COLOURS.get(word, ""))


def verdict_table(memory: Mapping[str, Curve], *, width: int, ascii_only: bool) -> Table:
    """One row per query; where room is scarce the window stands under the kind of decay.

    The confidence of the verdict is shown only where there is room.
    """
    wide = width >= WIDE
    columns = ["query", "decay", *(["conf.", "window"] if wide else []), "rate or exponent"]
    columns += ["half-life", "horizon", "floor", "probes"]
    made = table(*columns, ascii_only=ascii_only, tight=width < ROOMY)
    for query, curve in memory.items():
        made.add_row(
            Text(clean(query)),
            *_decay_cells(curve, wide=wide),
            wording.half_life(curve),
            wording.horizon(curve),
            f"{curve.floor:.0e}",
            wording.probes(curve, narrow=not wide),
        )
    return made


def _decay_cells(curve: Curve, *, wide: bool) -> tuple[Text, ...]:
    kind = coloured(clean(curve.decay.kind))
    window = wording.window(curve)
    strength = list(filter(None, (wording.strength(curve), wording.interval(curve))))
    if wide:
        return kind, Text(wording.confidence(curve)), Text(window), Text(" ".join(strength))
    if window != wording.NOTHING:
        kind = Text("\n").join((kind, Text(f"lags {window}")))
    return kind, Text("\n".join(strength))


def layers_table(report: Report, *, ascii_only: bool) -> Table:
    """One row per layer and query."""
    columns = ("layer", "query", "decay", "rate or exponent", "window", "half-life", "horizon")
    made = table(*columns, ascii_only=ascii_only)
    for layer, curves in report.layers.items():
        for position, (query, curve) in enumerate(curves.items()):
            made.add_row(
                Text(clean(layer) if position == 0 else ""),
                Text(clean(query)),
                coloured(clean(curve.decay.kind)),
                wording.strength(curve),
                wording.window(curve),
                wording.half_life(curve),
                wording.horizon(curve),
            )
    return made


def assumptions_table(assumptions: tuple[Assumption, ...], *, ascii_only: bool) -> Table:
    """One row per assumption of the theory, with residual and tolerance."""
    columns = ["assumption", "verdict", "residual", "tolerance", "note"]
    places = any(item.where for item in assumptions)
    made = table(*(["layer"] if places else []), *columns, ascii_only=ascii_only)
    for item in assumptions:
        place = [Text(clean(item.where))] if places else []
        made.add_row(
            *place,
            Text(clean(item.name)),
            coloured(item.verdict),
            wording.number(item.residual),
            wording.number(item.tolerance),
            Text(clean(item.note)),
        )
    return made
