"""Gradients beside the weights that they move, for every form of the recurrent weight."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from memaudit.errors import clean
from memaudit.reports import wording
from memaudit.reports.gradient_table import FORMS, number
from memaudit.reports.page.axes import axis, digits, option, powers
from memaudit.reports.page.detail import partly, spread
from memaudit.reports.page.figure import Figure, Key, View, unique
from memaudit.reports.page.markup import Markup, notes
from memaudit.reports.page.section import Section
from memaudit.reports.page.table import Table
from memaudit.reports.placing import placed

if TYPE_CHECKING:
    from memaudit.gradient.result import Gradient, ReparamGradient
    from memaudit.report import Report
    from memaudit.reports.page.detail import Detail

LEAD = (
    "How large the gradient of a weight is beside the weight itself, |dLoss/dw| / |w|: a large "
    "ratio makes training jump. Other forms of the same recurrent weight have other ratios."
)
#: So many reasons and notes are told; the JSON report has them all.
TOLD = 8
NUMBERS = (("largest", "$c2", "spot"), ("median", "$c1", "spot"), ("bound", "$soft", "diamond"))


def gradient_section(report: Report, detail: Detail) -> Section | None:
    """Every recurrent layer whose gradients were looked at."""
    items = report.gradient
    if not items:
        return None
    kept = [items[k] for k in spread(len(items), detail.lines).tolist()]
    named = dict(zip(unique(placed(g.where, g.layer) for g in kept), kept, strict=True))
    known = any(item.reparams or item.current or item.own is not None for item in kept)
    table = _layers(named, partly(len(kept), len(items), "layers"))
    blocks: list[Markup | None] = [table.markup() if known else None]
    drawn = {name: item for name, item in named.items() if item.reparams}
    if drawn:
        blocks.append(_figure(drawn).markup())
    blocks.append(notes(*_reasons(named)))
    return Section("gradients", "Gradients", LEAD, blocks)


def _reasons(named: dict[str, Gradient]) -> list[str]:
    """Why a form is recommended, and what else there is to know; alike for many layers: once."""
    told: dict[str, list[str]] = {}
    for name, item in named.items():
        for words in (item.reasoning, item.note):
            if words:
                told.setdefault(clean(words, limit=1000), []).append(name)
    return [
        f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {words}"
        for words, names in list(told.items())[:TOLD]
    ]


def _layers(named: dict[str, Gradient], more: str) -> Table:
    rows = []
    for name, item in named.items():
        forms = {one.name: one for one in item.reparams}
        has, better = forms.get(item.current), forms.get(item.recommended)
        rows.append(
            (
                name,
                clean(item.current, limit=40) or wording.NOTHING,
                _ratio(has),
                clean(item.recommended, limit=40) or wording.NOTHING,
                _ratio(better),
                wording.NOTHING if item.own is None else number(item.own),
            )
        )
    columns = ("recurrence", "form", "ratio", "recommended", "its ratio", "all weights")
    return Table(f"Largest ratio of gradient and weight{more}", columns, rows)


def _ratio(one: ReparamGradient | None) -> str:
    return wording.NOTHING if one is None else number(one.largest)


def _figure(named: dict[str, Gradient]) -> Figure:
    losses = ", ".join(dict.fromkeys(clean(item.loss) for item in named.values() if item.loss))
    return Figure(
        title="Forms of the recurrent weight",
        told="Ratios at the eigenvalues of the layer; farther left is calmer. "
        f"Loss: {losses}. {FORMS}",
        label="Dot plot of gradient ratios by form of the weight. "
        + "; ".join(f"{n}: {clean(i.recommended) or 'none'} recommended" for n, i in named.items())[
            :600
        ],
        views=tuple(_view(name, item) for name, item in named.items()),
        tables=tuple(_table(name, item) for name, item in named.items()),
        choice="Layer",
        shape="rows-9",
    )


def _view(name: str, item: Gradient) -> View:
    forms = [_label(item, one) for one in item.reparams]
    series, keys, seen = [], [], []
    for k, (field, hue, sign) in enumerate(NUMBERS):
        dots = []
        for row, one in enumerate(item.reparams):
            value = float(getattr(one, field))
            if 0 < value < math.inf:
                seen.append(value)
                dots.append(
                    {"value": [digits(value), row], "told": f"{forms[row]}, {_word(field)}"}
                )
        symbol = {"symbol": "diamond"} if sign == "diamond" else {"symbol": "circle"}
        made = {"type": "scatter", "name": _word(field), "data": dots, "symbolSize": 11, **symbol}
        series.append({**made, "color": hue, "itemStyle": {"color": hue}, "z": 5 - k})
        keys.append(Key(_word(field), hue, sign))
    rows = axis("", gap=8, kind="category", data=forms, inverse=True)
    rows["axisLabel"] = {"interval": 0, "width": 120, "margin": 16, "overflow": "truncate"}
    drawn = option(powers("|dLoss/dw| / |w|", seen, gap=28), rows, series, item=True)
    return View(name, drawn, tuple(keys), ("value",), grid=True)


def _word(field: str) -> str:
    return "scale" if field == "bound" else field


def _label(item: Gradient, one: ReparamGradient) -> str:
    marks = {item.current: " (has)", item.recommended: " ★"}
    return clean(one.name, limit=30) + marks.get(one.name, "")


def _table(name: str, item: Gradient) -> Table:
    rows = [
        (
            _label(item, one),
            clean(one.barred) or ("yes" if one.stable else "unstable"),
            *map(number, (one.largest, one.median, one.bound)),
            str(one.unreachable),
            number(one.learning_rate),
        )
        for one in item.reparams
    ]
    columns = ("form", "candidate", "ratio", "median", "scale", "out of reach", "safe rate")
    return Table(f"Forms at the eigenvalues of {name}", columns, rows, dense=True)
