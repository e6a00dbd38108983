"""The linear layers of a model: their exact memory beside the measured one."""

from __future__ import annotations

import math
from itertools import groupby
from typing import TYPE_CHECKING

from rich.text import Text

from memaudit.errors import clean
from memaudit.memory.result import Curve
from memaudit.reports import wording
from memaudit.reports.placing import placed
from memaudit.reports.tables import COLOURS, table

if TYPE_CHECKING:
    import numpy as np
    from rich.table import Table

    from memaudit.closed_form.result import ClosedForm
    from memaudit.memory.result import Decay, Status

#: So many notes are told; the JSON report has them all.
TOLD = 4
Cells = tuple[str, str, str, str]


def linear_layers_table(items: tuple[ClosedForm, ...], *, ascii_only: bool) -> Table:
    """One row per linear layer; neighbours that read the same share a row."""
    columns = ("linear layer", "exact memory", "horizon", "measured", "difference")
    made = table(*columns, ascii_only=ascii_only)
    for (cells, agrees), group in groupby(items, key=lambda item: (_cells(item), item.agrees)):
        alike = list(group)
        kind = clean(alike[0].decay.kind)
        decay = Text(cells[0], style=COLOURS.get(kind, ""))
        difference = Text(cells[3], style="bold red" if agrees is False else "")
        made.add_row(Text(_names(alike)), decay, cells[1], cells[2], difference)
    return made


def linear_layers_lines(items: tuple[ClosedForm, ...]) -> list[Text]:
    """What the columns mean, what the notes say, and what a `?` is, where there is one."""
    told = ["Difference: of the answers from the kernel, as a share of the largest memory."]
    noted = [(item.note, item) for item in items if item.note]
    groups = [(note, [item for _, item in group]) for note, group in groupby(noted, _first)]
    told += [f"{_names(alike)}: {clean(note)}" for note, alike in groups[:TOLD]]
    if len(groups) > TOLD:
        told.append(f"... and {len(groups) - TOLD} more notes")
    if any(wording.UNKNOWN in _cells(item) for item in items):
        told.append(f"{wording.UNKNOWN}: {wording.HIDDEN}")
    return [Text("\n".join(told))]


def _first(pair: tuple[str, ClosedForm]) -> str:
    return pair[0]


def _names(alike: list[ClosedForm]) -> str:
    first = alike[0]
    place = clean(placed(first.where, first.layer))
    return place if len(alike) == 1 else f"{place} and {len(alike) - 1} more"


def _cells(item: ClosedForm) -> Cells:
    exact, measured = _exact(item), _measured(item)
    kind = clean(item.decay.kind)
    # A power law is one inside its window only.
    told = f"{kind} {wording.window(exact)}" if kind == "polynomial" else kind
    strength = wording.strength(exact)
    told += "" if strength == wording.NOTHING else f", {strength}"
    return told, wording.horizon(exact), wording.horizon(measured), difference(item.deviation)


def difference(deviation: float | None) -> str:
    """How far the answers are from the kernel, in one digit."""
    if deviation is None:
        return wording.NOTHING
    return "infinite" if math.isinf(deviation) else f"{deviation:.0e}" if deviation else "0"


def as_curves(item: ClosedForm) -> tuple[Curve, Curve]:
    """The exact memory and the measured one as curves, for the words of the reports."""
    return _exact(item), _measured(item)


def _exact(item: ClosedForm) -> Curve:
    """The closed form as a curve, which the words of the report are about."""
    judged = (item.floor, item.status, item.decay, item.horizon, item.half_life)
    return _curve(item, item.exact, *judged)


def _measured(item: ClosedForm) -> Curve:
    judged = (item.measured_floor, item.measured_status, item.measured_decay)
    return _curve(item, item.measured, *judged, item.measured_horizon, item.measured_half_life)


def _curve(
    item: ClosedForm,
    values: np.ndarray,
    floor: float,
    status: Status,
    decay: Decay,
    horizon: int | None,
    half_life: float | None,
) -> Curve:
    return Curve(
        query="impulse",
        normalization="iatn",
        lags=item.lags[: len(values)],
        values=values,
        median=values,
        floor=floor,
        status=status,
        decay=decay,
        horizon=horizon,
        half_life=half_life,
        epsilon=item.epsilon,
        probes=0,
        exact=True,
        at_edge=False,
    )
