"""What every number format does to the recurrent weights, in one table."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from memaudit.errors import clean
from memaudit.precision.result import FACTOR, TOLERATED
from memaudit.reports import wording
from memaudit.reports.tables import table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from memaudit.precision.result import Precision, Rounding

SAFE, THERE, UNTRIED = "safe", "no worse", "not measured"
STYLES = {"error": "red", "warning": "yellow"}
#: So many notes are told; the JSON report has them all.
TOLD = 4


def precision_block(precision: Precision, *, ascii_only: bool) -> RenderableType:
    """The table where there is something in it, and what it means."""
    title = Text("Precision", style="bold underline")
    made = [precision_table(precision, ascii_only=ascii_only)] if _formats(precision) else []
    return Group(title, *made, *precision_lines(precision))


def precision_table(precision: Precision, *, ascii_only: bool) -> Table:
    """One row per format; of a host that part which bears it worst."""
    columns = ("format", "max-abs", "spectral", "error", "margin", "horizon", "verdict")
    made = table(*columns, ascii_only=ascii_only)
    for name in _formats(precision):
        where, worst = gravest(_parts(precision), name)
        verdict, style = rounding_verdict(worst)
        told = f"{verdict}: {clean(where)}" if where and style else verdict
        made.add_row(*map(Text, (clean(name), *_cells(worst))), Text(told, style=style))
    return made


def precision_lines(precision: Precision) -> list[Text]:
    """What the columns mean, and what the notes say."""
    told = [_legend(precision)] if _formats(precision) else []
    notes = [(p.where, p.note) for p in _parts(precision) if p.note]
    notes += [
        (f"{p.where} {r.format}".strip(), r.note)
        for p in _parts(precision)
        for r in p.roundings
        if r.note
    ]
    told += [
        f"{clean(where)}: {clean(note)}" if where else clean(note) for where, note in notes[:TOLD]
    ]
    if len(notes) > TOLD:
        told.append(f"... and {len(notes) - TOLD} more notes")
    return [Text("\n".join(told))]


def _legend(precision: Precision) -> str:
    return (
        f"Rounded: {_weights(precision)}.\n"
        f"Size of the move in two balls; error ({clean(precision.norm)}) as a share of the "
        "answers; smallest margin after it; horizon under the query that changes most "
        f"({wording.NOTHING}: none within the window). Safe: the error is at most "
        f"{100 * TOLERATED:.0f} %, no mode reaches the boundary, and horizons and rates change by "
        f"a factor of {FACTOR:.0f} at most. No worse: the same, of modes that are on the boundary "
        "already."
    )


def _parts(precision: Precision) -> tuple[Precision, ...]:
    return (precision, *precision.others)


def _formats(precision: Precision) -> list[str]:
    return list(dict.fromkeys(r.format for p in _parts(precision) for r in p.roundings))


def _weights(precision: Precision) -> str:
    names = [clean(name, limit=60) for part in _parts(precision) for name in part.weights]
    more = f" and {len(names) - TOLD} more" if len(names) > TOLD else ""
    return ", ".join(names[:TOLD]) + more


def gravest(parts: tuple[Precision, ...], name: str) -> tuple[str, Rounding]:
    """What a format does to the part that bears it worst, and where that is."""
    found = [(p.where, r) for p in parts for r in p.roundings if r.format == name]
    return max(found, key=lambda pair: _gravity(pair[1]))


def _gravity(rounding: Rounding) -> tuple[int, float]:
    severities = [harm.severity for harm in rounding.harms()]
    grave = 2 if "error" in severities else 1 if severities else 0
    return grave, rounding.relative or 0.0


def rounding_verdict(rounding: Rounding) -> tuple[str, str]:
    """The gravest harm, and its colour."""
    broken = rounding.harms()
    if broken:
        return broken[0].short, STYLES[broken[0].severity]
    if not rounding.layers and not rounding.memory:
        return UNTRIED, ""
    before = [layer.margin_before for layer in rounding.layers]
    return (THERE if any(m is not None and m <= 0 for m in before) else SAFE), ""


def _cells(rounding: Rounding) -> tuple[str, str, str, str, str]:
    margins = [layer.margin_after for layer in rounding.layers]
    known = [margin for margin in margins if margin is not None]
    return (
        _number(rounding.betas.get("max-abs")),
        _number(rounding.betas.get("spectral")),
        wording.NOTHING if rounding.relative is None else _share(rounding.relative),
        _number(min(known, default=None)),
        _horizons(rounding),
    )


def _number(value: float | None) -> str:
    if value is None:
        return wording.NOTHING
    return "infinite" if math.isinf(value) else f"{value:.1e}" if value else "0"


def _share(value: float) -> str:
    percent = 100 * value
    if percent >= 1e4:
        return "infinite" if math.isinf(percent) else f"{percent:.0e} %"
    return f"{percent:.0f} %" if percent >= 10 else f"{percent:.2g} %"


def _horizons(rounding: Rounding) -> str:
    """The horizon of the query that changes most, before and after; one where they are equal."""
    if not rounding.memory:
        return wording.NOTHING
    most = max(rounding.memory, key=lambda memory: (memory.factor, memory.change))
    before, after = (
        wording.NOTHING if lag is None else str(lag)
        for lag in (most.horizon_before, most.horizon_after)
    )
    return before if before == after else f"{before} -> {after}"
