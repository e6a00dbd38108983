"""What can be read back from the states: one table for any model, one for linear layers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from memaudit.errors import clean
from memaudit.memory.result import Status
from memaudit.reports import wording
from memaudit.reports.placing import placed
from memaudit.reports.tables import table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType
    from rich.table import Table

    from memaudit.recall.result import Decoding, LinearRecall, Recall, StateRecall

#: So many states and layers have a row, and so many notes are told; the JSON report has them all.
ROWS, TOLD = 24, 4
#: Inputs that are off by less than this share of their size count as read back.
RECOVERED = 0.01
STATES = (
    "R^2: how much of the input of so many steps ago a linear readout finds in the state, after "
    "inputs that came for ever. Capacity: its sum over the lags asked for and the inputs, without "
    "what is below the floor; at most the numbers of the state. Half: lags, from 0 on, with R^2 of "
    "one half or more. Exact: in closed form, from the matrices of the layer."
)
LAYERS = (
    "V_k leads from k inputs after rest to the state of a layer; k is as large as the state "
    "allows. Error: of the least-squares inputs from the state rounded to {dtype}. Rank: at "
    "{steps} steps, in float64 and rounded. Haar: functions of which an input of {steps} steps may "
    "be made, of those tried, and still be read back within 0.01 of its size."
)


def recall_block(recall: Recall, *, ascii_only: bool) -> RenderableType:
    """Both tables where there is something in them, and what they mean."""
    blocks: list[RenderableType] = [Text("Recall", style="bold underline")]
    if any(part.decodings for part in _parts(recall)):
        blocks.append(states_table(recall, ascii_only=ascii_only))
    if any(True for _ in _read(recall)):
        blocks += [Text(""), layers_table(recall, ascii_only=ascii_only)]
    return Group(*blocks, *recall_lines(recall))


def states_table(recall: Recall, *, ascii_only: bool) -> Table:
    """One row per state."""
    columns = ("state", "read", "numbers", "inputs", "capacity", "half", "R^2 at 0, 1, 8")
    made = table(*columns, "floor", ascii_only=ascii_only)
    rows = [(p.where, d) for p in _parts(recall) for d in p.decodings]
    for where, item in rows[:ROWS]:
        capacity = wording.NOTHING if item.capacity is None else f"{item.capacity:.4g}"
        made.add_row(
            Text(_place(where, item.state)),
            "exact" if item.exact else clean(item.kind),
            str(item.numbers),
            str(item.inputs),
            capacity,
            f"> {item.half - 1}" if item.half and item.half == len(item.values) else str(item.half),
            _at(item),
            f"{item.floor:.0e}" if item.floor else "0",
        )
    return made


def layers_table(recall: Recall, *, ascii_only: bool) -> Table:
    """One row per linear layer."""
    columns = ("linear layer", "numbers", "inputs", "k", "cond(V_k)", "error", "rank", "Haar")
    made = table(*columns, ascii_only=ascii_only)
    for where, item in list(_read(recall))[:ROWS]:
        most, last = _fullest(item), item.lengths[-1]
        rank = str(last.rank)
        if last.rounded_rank != last.rank:
            rank += f" ({last.rounded_rank})"
        made.add_row(
            Text(_place(where, item.layer)),
            str(item.numbers),
            str(item.inputs),
            str(most.count),
            _number(most.condition),
            f"{most.rounded_error:.1e}",
            rank,
            _sparse(item),
        )
    return made


def recall_lines(recall: Recall) -> list[Text]:
    """What the columns mean, what was fed, and why something is missing."""
    told: list[str] = []
    parts = _parts(recall)
    fed = dict.fromkeys(clean(part.fed) for part in parts if part.fed)
    if fed:
        told.append(f"{STATES} Fed: {'; '.join(fed)}.")
    layers = [layer for _, layer in _read(recall)]
    if layers:
        told.append(LAYERS.format(dtype=clean(layers[0].dtype), steps=layers[0].steps))
    count = max(sum(len(p.decodings) for p in parts), len(layers))
    if count > ROWS:
        told.append(f"... and {count - ROWS} more")
    notes = list(_notes(recall))
    told += [f"{where}: {note}" if where else note for where, note in notes[:TOLD]]
    if len(notes) > TOLD:
        told.append(f"... and {len(notes) - TOLD} more notes")
    return [Text("\n".join(told))] if told else []


def _notes(recall: Recall) -> Iterator[tuple[str, str]]:
    for part in _parts(recall):
        if part.status is not Status.OK:
            yield clean(part.where), str(part.status)
        if part.note:
            yield clean(part.where), clean(part.note)
        for item in part.decodings:
            if item.status is not Status.OK:
                yield _place(part.where, item.state), str(item.status)
        for layer in part.linear:
            if layer.status is not Status.OK:
                yield _place(part.where, layer.layer), str(layer.status)


def _parts(recall: Recall) -> tuple[Recall, ...]:
    return (recall, *recall.others)


def _read(recall: Recall) -> Iterator[tuple[str, LinearRecall]]:
    """The layers whose state could be read, with the part of a host that they belong to."""
    for part in _parts(recall):
        for layer in part.linear:
            if layer.lengths:
                yield part.where, layer


def _place(where: str, name: str) -> str:
    return clean(placed(where, name))


def _fullest(item: LinearRecall) -> StateRecall:
    """The longest input that the numbers of the state could hold."""
    room = item.numbers // (1 if item.channels else item.inputs)
    return max((s for s in item.lengths if s.count <= max(room, 1)), key=lambda s: s.count)


def _at(item: Decoding) -> str:
    """R² at a few lags; nothing where it was not measured."""
    found = [item.values[lag] for lag in (0, 1, 8) if lag < len(item.values)]
    return " ".join(f"{value:.2f}" for value in found) or wording.NOTHING


def _sparse(item: LinearRecall) -> str:
    held = [s.count for s in item.sparse if s.rounded_error <= RECOVERED]
    return str(max(held)) if held else "none" if item.sparse else wording.NOTHING


def _number(value: float) -> str:
    return "infinite" if math.isinf(value) else f"{value:.1e}" if value >= 1e4 else f"{value:.4g}"
