"""Linear layers: the exact memory function on top of the measured one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memaudit.closed_form.result import MOST_STORED
from memaudit.errors import clean
from memaudit.reports import wording
from memaudit.reports.linear_layers import as_curves, difference
from memaudit.reports.page.axes import below, option, pairs, powers
from memaudit.reports.page.curves import shape
from memaudit.reports.page.detail import outline, partly, spread
from memaudit.reports.page.figure import Figure, Key, View, unique
from memaudit.reports.page.section import Section
from memaudit.reports.page.table import Table, number
from memaudit.reports.placing import placed

if TYPE_CHECKING:
    from memaudit.closed_form.result import ClosedForm
    from memaudit.report import Report
    from memaudit.reports.page.detail import Detail

LEAD = (
    "Layers that are linear have a memory function in closed form. The running layer must answer "
    "as its kernel says; the difference is a share of the largest memory."
)


def linear_section(report: Report, detail: Detail) -> Section | None:
    """Every layer with a closed form."""
    items = report.closed_form
    if not items:
        return None
    kept = [items[k] for k in spread(len(items), detail.lines).tolist()]
    labels = unique(placed(c.where, c.layer) for c in kept)
    named = dict(zip(labels, kept, strict=True))
    rows = [(name, *_cells(item)) for name, item in named.items()]
    columns = ("linear layer", "exact memory", "horizon", "measured", "difference", "note")
    table = Table(f"Linear layers{partly(len(kept), len(items), 'layers')}", columns, rows)
    drawn = {name: item for name, item in named.items() if len(item.lags)}
    blocks = [table.markup(), *([_figure(drawn, detail).markup()] if drawn else [])]
    return Section("linear", "Closed form", LEAD, blocks, scale=True)


def _cells(item: ClosedForm) -> tuple[str, ...]:
    exact, measured = as_curves(item)
    kind = clean(item.decay.kind)
    strength = wording.strength(exact)
    told = kind if strength == wording.NOTHING else f"{kind}, {strength}"
    horizons = wording.horizon(exact), wording.horizon(measured)
    return told, *horizons, difference(item.deviation), clean(item.note)


def _figure(named: dict[str, ClosedForm], detail: Detail) -> Figure:
    views = tuple(_view(name, item, detail) for name, item in named.items())
    return Figure(
        title="Exact and measured memory",
        told="The measured curve lies on the exact one where the layer does what its kernel says.",
        label="Line plot of exact and measured memory by lag.",
        views=views,
        tables=tuple(_table(name, item, detail) for name, item in named.items()),
        choice="Layer",
        shape="tall",
    )


def _view(name: str, item: ClosedForm, detail: Detail) -> View:
    exact, measured = (np.asarray(v, float) for v in (item.exact, item.measured))
    kept, heard = detail.kept(exact), detail.kept(measured)
    heights = [
        *exact[exact > item.floor].tolist(),
        *measured[measured > item.measured_floor].tolist(),
    ]
    wide, thin = {"width": 6, "opacity": 0.4, "cap": "round"}, {"width": 1.5}
    series = [
        *shape("exact", pairs(item.lags[kept], exact[kept]), "$c1", lineStyle=wide),
        *shape("measured", pairs(item.lags[heard], measured[heard]), "$c2", lineStyle=thin),
    ]
    first, last = int(item.lags[0]), int(item.lags[-1])
    made = option(below("lag (steps)", first, last), powers("memory", heights, gap=42), series)
    keys = (Key("exact", "$c1", "broad"), Key("measured", "$c2"))
    part = len(kept) + len(heard), len(exact) + len(measured)
    return View(name, made, keys, ("lag", "memory"), lag=True, drawn=part)


def _table(name: str, item: ClosedForm, detail: Detail) -> Table:
    lags = np.asarray(item.lags)
    told = outline(item.exact, detail.rows)
    measured = item.measured.tolist()
    rows = [
        (
            str(int(lags[k])),
            number(float(item.exact[k])),
            number(measured[k] if k < len(measured) else None),
        )
        for k in told.tolist()
    ]
    more = partly(len(told), item.count, "lags", stored=MOST_STORED)
    return Table(f"{name} by lag{more}", ("lag", "exact", "measured"), rows, dense=True)
