"""What the spectra predict beside what the queries measured."""

from __future__ import annotations

import math
from itertools import groupby
from typing import TYPE_CHECKING

from rich.text import Text

from memaudit.errors import clean
from memaudit.numerics.predictions import predictions
from memaudit.reports import wording
from memaudit.reports.placing import placed
from memaudit.reports.tables import table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from memaudit.numerics.predictions import Prediction
    from memaudit.report import Report
    from memaudit.spectrum.result import LayerSpectrum as Spectrum

#: So many rows and notes are told; the JSON report has what they are made from.
TOLD = 12


def spectrum_lines(report: Report, *, ascii_only: bool) -> list[RenderableType]:
    """Predicted and measured rates side by side, where there are any, and the spectra's notes."""
    pairs = [item for item in predictions(report) if item.measured is not None]
    shown: list[RenderableType] = [_side_by_side(pairs, ascii_only=ascii_only)] if pairs else []
    noted = [(clean(item.note), item) for item in report.spectrum if item.note]
    notes = [(note, [item for _, item in group]) for note, group in groupby(noted, _first)]
    told = [f"{_names(alike)}: {note}" for note, alike in notes[:TOLD]]
    more = len(pairs) - TOLD
    told += [f"... and {more} more rates"] if more > 0 else []
    told += [f"... and {len(notes) - TOLD} more notes"] if len(notes) > TOLD else []
    return shown + ([Text("\n".join(told))] if told else [])


def _side_by_side(pairs: list[Prediction], *, ascii_only: bool) -> RenderableType:
    places = any(item.where for item in pairs)
    columns = ["query", "predicted rate", "measured rate", "slowest mode"]
    made = table(*(["layer"] if places else []), *columns, ascii_only=ascii_only)
    for item in pairs[:TOLD]:
        measured = f"{item.measured:.4g} {wording.interval(item.curve)}"
        predicted = "infinite" if math.isinf(item.rate) else f"{item.rate:.4g}"
        row = [item.where] if places else []
        # How long it took to settle stands in the JSON report.
        slowest = f"{item.layer}, {item.at.partition(',')[0]}"
        row += [item.query, predicted, measured.strip(), slowest]
        made.add_row(*(Text(clean(cell)) for cell in row))
    return made


def _first(pair: tuple[str, Spectrum]) -> str:
    return pair[0]


def _names(alike: list[Spectrum]) -> str:
    first = alike[0]
    place = clean(placed(first.where, first.layer))
    return place if len(alike) == 1 else f"{place} and {len(alike) - 1} more"
