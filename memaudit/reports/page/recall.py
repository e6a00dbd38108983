"""What can be read back from the states: R² of past inputs by lag."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memaudit.errors import clean
from memaudit.recall.result import Recall
from memaudit.reports import wording
from memaudit.reports.page.axes import axis, below, line, option, pairs
from memaudit.reports.page.detail import partly, spread
from memaudit.reports.page.figure import Figure, Key, View, unique
from memaudit.reports.page.markup import Markup, notes, tag
from memaudit.reports.page.section import Section
from memaudit.reports.page.spectrum import depth
from memaudit.reports.page.strokes import stroke
from memaudit.reports.page.table import Table, number
from memaudit.reports.placing import placed

if TYPE_CHECKING:
    from memaudit.recall.result import Decoding, LinearRecall
    from memaudit.report import Report
    from memaudit.reports.page.detail import Detail

LEAD = (
    "How much of the input of so many steps ago a linear readout finds in a state. The capacity is "
    "the sum over lags and inputs, at most the numbers in the state."
)


def recall_section(report: Report, detail: Detail) -> Section | None:
    """Every state that was read, and every linear layer."""
    if not isinstance(report.recall, Recall):
        return None
    parts = (report.recall, *report.recall.others)
    read = [(p.where, d) for p in parts for d in p.decodings]
    layers = [(p.where, item) for p in parts for item in p.linear if item.lengths]
    kept = [read[k] for k in spread(len(read), detail.lines).tolist()]
    named = dict(
        zip(unique(_place(w, d.state) for w, d in kept), (d for _, d in kept), strict=True)
    )
    blocks: list[Markup | None] = []
    if named:
        more = partly(len(named), len(read), "states")
        blocks += [_states(named, more).markup(), _figure(named, detail).markup()]
    if layers:
        summary = tag("summary", "Inputs read back from the states of linear layers")
        table = _layers(layers[: detail.lines]).markup()
        blocks.append(tag("details", summary, table, class_="data"))
    told = [p.note for p in parts] + [p.fed and f"Fed: {p.fed}." for p in parts]
    blocks.append(notes(*told[: detail.items]))
    return Section("recall", "Recall", LEAD, blocks, scale=bool(named))


def _states(named: dict[str, Decoding], more: str) -> Table:
    rows = [
        (
            name,
            "exact" if item.exact else clean(item.kind),
            str(item.numbers),
            str(item.inputs),
            number(item.capacity, 4),
            str(item.half),
            number(item.floor, 2),
        )
        for name, item in named.items()
    ]
    columns = ("state", "read", "numbers", "inputs", "capacity", "lags above one half", "floor")
    return Table(f"Memory capacity by state{more}", columns, rows)


def _figure(named: dict[str, Decoding], detail: Detail) -> Figure:
    series, keys, longest, shown_points = [], [], 1, 0
    for k, (name, item) in enumerate(named.items()):
        lags = np.arange(len(item.values))
        shown = detail.kept(item.values)
        shown_points += len(shown)
        hue = depth(k, len(named))
        drawn = stroke(k, len(named))
        points = pairs(lags[shown], item.values[shown], positive=False)
        series.append(line(name, points, hue, lineStyle=drawn.style()))
        keys.append(Key(name, hue, drawn.sign))
        longest = max(longest, len(lags) - 1)
    upward = axis("R²", gap=42, min=0, max=1)
    made = option(below("lag (steps)", 0, longest), upward, series)
    part = shown_points, sum(len(item.values) for item in named.values())
    view = View("states", made, tuple(keys), ("lag", "R²"), lag=True, drawn=part)
    return Figure(
        title="R² by lag",
        told="One: the input of so many steps ago can be read off exactly. Zero: it is gone.",
        label="Line plot of R² by lag for every state.",
        views=(view,),
        tables=(_table(named, detail),),
        shape="tall",
    )


def _table(named: dict[str, Decoding], detail: Detail) -> Table:
    count = max(len(item.values) for item in named.values())
    told = detail.told(count).tolist()
    rows = [(str(lag), *(_at(item, lag) for item in named.values())) for lag in told]
    return Table(f"R² by lag{partly(len(told), count, 'lags')}", ("lag", *named), rows, dense=True)


def _at(item: Decoding, lag: int) -> str:
    return number(float(item.values[lag])) if lag < len(item.values) else wording.NOTHING


def _layers(layers: list[tuple[str, LinearRecall]]) -> Table:
    rows = [
        (
            _place(where, item.layer),
            str(item.numbers),
            str(item.inputs),
            f"{one.count}",
            str(one.rank),
            str(one.rounded_rank),
            number(one.condition, 3),
            number(one.rounded_error, 2),
        )
        for where, item in layers
        for one in item.lengths
    ]
    columns = ("linear layer", "numbers", "inputs", "steps", "rank", "rank as stored", "condition")
    return Table("Inputs read back from the state", (*columns, "error"), rows, dense=True)


def _place(where: str, name: str) -> str:
    return clean(placed(where, name))
