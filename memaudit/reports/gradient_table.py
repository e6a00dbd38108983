"""Gradients beside the weights that they move: layers, forms of the worst one, and the reasons."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from memaudit.errors import clean
from memaudit.reports import wording
from memaudit.reports.placing import placed
from memaudit.reports.tables import table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from memaudit.gradient.result import Gradient, ReparamGradient

#: So many layers have a row, and so many notes are told; the JSON report has them all.
ROWS, TOLD = 24, 4
ALL = "All weights: that ratio over every raw recurrent weight, phases and step sizes too."
FORMS = (
    "Candidate: yes, or why the form is never recommended, whatever its ratio (flat: no gradient "
    "beyond a limit; reach: modes out of its reach). Scale: the largest |f'| / f^2, in discrete "
    "time |f'| / (1 - f)^2. Safe rate: of plain gradient descent on the weight of the modes alone."
)


def gradient_block(items: tuple[Gradient, ...], *, ascii_only: bool) -> RenderableType:
    """Both tables, and what they mean."""
    title = Text("Gradients", style="bold underline")
    blocks: list[RenderableType] = [title, gradient_table(items, ascii_only=ascii_only)]
    other = forms_table(items, ascii_only=ascii_only)
    if other is not None:
        blocks += [Text(""), other]
    return Group(*blocks, *gradient_lines(items))


def gradient_table(items: tuple[Gradient, ...], *, ascii_only: bool) -> Table:
    """One row per recurrence: what it has, what is recommended, and the largest ratios of both.

    The last column is about every raw weight, phases and step sizes too.
    """
    columns = (
        "recurrence",
        "form",
        "ratio",
        "recommended",
        "its ratio",
        "safe rate",
        "all weights",
    )
    made = table(*columns, ascii_only=ascii_only)
    for item in items[:ROWS]:
        better = _named(item, item.recommended)
        current = _named(item, item.current)
        safe = better or current
        made.add_row(
            Text(place(item)),
            Text(clean(item.current) or wording.NOTHING),
            wording.NOTHING if current is None else number(current.largest),
            Text(clean(item.recommended) or wording.NOTHING),
            wording.NOTHING if better is None else number(better.largest),
            wording.NOTHING if safe is None else number(safe.learning_rate),
            wording.NOTHING if item.own is None else number(item.own),
        )
    return made


def forms_table(items: tuple[Gradient, ...], *, ascii_only: bool) -> Table | None:
    """Every form at the eigenvalues of the layer with the largest ratio; None if none has any."""
    item = worst(items)
    if item is None:
        return None
    columns = ("form", "candidate", "ratio", "median", "scale", "out of reach", "safe rate")
    made = table(*columns, ascii_only=ascii_only)
    for one in item.reparams:
        marks = {item.current: " (has)", item.recommended: " *"}
        numbers = (one.largest, one.median, one.bound)
        made.add_row(
            Text(clean(one.name) + marks.get(one.name, "")),
            clean(one.barred) or ("yes" if one.stable else "unstable"),
            *map(number, numbers),
            str(one.unreachable),
            number(one.learning_rate),
        )
    return made


def gradient_lines(items: tuple[Gradient, ...]) -> list[Text]:
    """What the ratios are, the reasons for the worst layer, and the notes."""
    told: list[str] = []
    losses = dict.fromkeys(clean(item.loss) for item in items if item.loss)
    if losses:
        told.append(f"Ratio: the largest |dLoss/dw| / |w|. Loss: {', '.join(losses)}.")
        told.append(ALL)
    if len(items) > ROWS:
        told.append(f"... and {len(items) - ROWS} more recurrences")
    item = worst(items)
    if item is not None:
        told.append(f"Forms: at the eigenvalues of {place(item)}. {FORMS}")
    if item is not None and item.reasoning:
        told.append(f"{place(item)}: {clean(item.reasoning, limit=1200)}")
    notes: dict[str, list[str]] = {}
    for one in items:
        if one.note:
            notes.setdefault(clean(one.note), []).append(place(one))
    for note, places in list(notes.items())[:TOLD]:
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        told.append(f"{places[0]}{more}: {note}")
    if len(notes) > TOLD:
        told.append(f"... and {len(notes) - TOLD} more notes")
    return [Text("\n".join(told))] if told else []


def worst(items: tuple[Gradient, ...]) -> Gradient | None:
    """The layer with the largest ratio of those for which other forms are known."""
    known = [item for item in items if item.reparams]
    return max(known, key=_largest, default=None)


def place(item: Gradient) -> str:
    """The layer, behind the part of a host that it belongs to."""
    return clean(placed(item.where, item.layer))


def number(value: float) -> str:
    """A ratio or rate in three digits; JSON has a word for infinity, and so has this."""
    return "infinite" if math.isinf(value) else f"{value:.3g}"


def _largest(item: Gradient) -> float:
    current = _named(item, item.current)
    return current.largest if current is not None else item.own or 0.0


def _named(item: Gradient, name: str) -> ReparamGradient | None:
    return next((one for one in item.reparams if name and one.name == name), None)
