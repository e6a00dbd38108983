"""What a retrofit did, as a page for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from memaudit.errors import clean
from memaudit.reports import wording
from memaudit.reports.tables import table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from memaudit.retrofitting.result import Retrofit, RetrofittedLayer

#: So many layers have a row or a line; retrofit_config.json has them all.
ROWS, TOLD = 48, 16
RADIUS = "Radius: how far the weights may move until the answers change"


def retrofit_page(done: Retrofit, *, ascii_only: bool) -> RenderableType:
    """A table of the layers, then what moved and what was refused."""
    title = Text(f"Retrofit {clean(done.reparam)}", style="bold underline")
    blocks: list[RenderableType] = [title, layer_table(done, ascii_only=ascii_only), Text("")]
    blocks += [Text(line) for line in _lines(done)]
    return Group(*blocks)


def layer_table(done: Retrofit, *, ascii_only: bool) -> Table:
    """One row per weight; the constants stand under the form."""
    made = table("layer", "weight", "form", "difference", "radius", ascii_only=ascii_only)
    arrow = "->" if ascii_only else "→"
    for layer in done.layers[:ROWS]:
        made.add_row(
            Text(clean(layer.layer)),
            Text(clean(layer.weight.rpartition(".")[2])),
            Text(_form(layer, arrow)),
            wording.number(layer.difference),
            Text(_radius(layer, arrow)),
        )
    return made


def _form(layer: RetrofittedLayer, arrow: str) -> str:
    name = layer.new.partition(" (")[0]
    constants = ", ".join(f"{key}={value:.4g}" for key, value in layer.constants.items())
    first = f"{clean(layer.old)} {arrow} {clean(name)}"
    return f"{first}\n{clean(constants)}" if constants else first


def _radius(layer: RetrofittedLayer, arrow: str) -> str:
    if layer.radius_before is None and layer.radius_after is None:
        return wording.NOTHING
    pair = (layer.radius_before, layer.radius_after)
    return f" {arrow} ".join(wording.number(value) for value in pair)


def _lines(done: Retrofit) -> list[str]:
    """What does not fit into a table."""
    lines = []
    if len(done.layers) > ROWS:
        lines.append(f"And {len(done.layers) - ROWS} more weights.")
    if done.difference is not None:
        lines.append(f"Largest difference of the model's answers: {done.difference:.2g}.")
    told = next((one.radius_criterion for one in done.layers if one.radius_criterion), "")
    if told:
        lines.append(f"{RADIUS}: {clean(told)}.")
    moved = [one for one in done.layers if one.moved]
    lines += [
        f"Moved: {one.moved} of {one.modes} modes of {clean(one.layer)}, by {one.farthest:.3g} "
        "at most."
        for one in moved[:TOLD]
    ]
    lines += [f"Refused: {clean(one.layer)}: {clean(one.reason)}." for one in done.refused[:TOLD]]
    if len(done.refused) > TOLD:
        lines.append(f"And {len(done.refused) - TOLD} more refused.")
    notes = dict.fromkeys((*(one.note for one in done.layers if one.note), *done.notes))
    lines += [f"Note: {clean(note)}." for note in list(notes)[:TOLD]]
    return lines
