"""Memory layer by layer: the horizons beside each other, and the curves of one query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memaudit.errors import clean
from memaudit.memory.curve import longest_layers
from memaudit.reports import wording
from memaudit.reports.page.axes import (
    axis,
    colour,
    depth_colour,
    option,
    powers,
)
from memaudit.reports.page.curves import (
    counted,
    curves_table,
    drawn,
    is_heard,
    lag_axis,
    memory_axis,
    points,
    shape,
)
from memaudit.reports.page.detail import partly, spread
from memaudit.reports.page.figure import Figure, Key, View, unique
from memaudit.reports.page.section import Section
from memaudit.reports.page.strokes import stroke
from memaudit.reports.page.table import Table

if TYPE_CHECKING:
    from memaudit.memory.result import Curve
    from memaudit.report import Report
    from memaudit.reports.page.detail import Detail

    Layers = dict[str, dict[str, Curve]]

WHOLE = "The hidden state after every layer, from the same passes as the model's own answers."
#: Where a horizon of 0 stands on a logarithmic axis: a decade below one step.
ZERO = 0.1
PARTS = "The recurrent parts of the model, each run by itself."


def layers_section(report: Report, detail: Detail) -> Section | None:
    """Every layer; nothing where the model is its only one."""
    layers = {name: curves for name, curves in report.layers.items() if curves}
    if not layers or (len(layers) < 2 and not report.subject.whole):
        return None
    kept = spread(len(layers), detail.lines).tolist()
    names = list(layers)
    shown = {names[k]: layers[names[k]] for k in kept}
    labels = dict(zip(shown, unique(shown), strict=True))
    made = {labels[name]: curves for name, curves in shown.items()}
    longest = {q: labels.get(n, clean(n, limit=60)) for q, n in longest_layers(layers).items()}
    held = ", ".join(f"{name} ({clean(query)})" for query, name in longest.items())
    told = WHOLE if report.subject.whole else PARTS
    told += f" Longest memory: {held}." if held else " No layer stands out in this window."
    more = partly(len(shown), len(layers), "layers")
    horizons = [_horizons(made, more).markup()] if len(made) > 1 else []
    blocks = [*horizons, _curves(made, detail, more).markup()]
    return Section("layers", "Layers", told, blocks, scale=True)


def _queries(layers: Layers) -> list[str]:
    return list(dict.fromkeys(q for curves in layers.values() for q in curves))


def _horizons(layers: Layers, more: str) -> Figure:
    """One row per layer, one dot per query."""
    queries = _queries(layers)
    names = list(layers)
    series, keys, seen = [], [], [1.0]
    for k, (query, name) in enumerate(zip(queries, unique(queries), strict=True)):
        dots: list[dict[str, Any]] = []
        for row, curves in enumerate(layers.values()):
            if (curve := curves.get(query)) is None:
                continue
            lag, beyond = _reached(curve)
            if lag is None:
                continue
            seen.append(lag)
            dot = {
                "value": [lag or ZERO, row],
                "told": f"{names[row]}, {name}: {wording.horizon(curve)}",
            }
            dots.append({**dot, **({"symbol": "triangle", "symbolRotate": -90} if beyond else {})})
        style = {"color": colour(k), "opacity": 0.9}
        offset = [0, (k - (len(queries) - 1) / 2) * 5]
        dotted = {"type": "scatter", "name": name, "data": dots, "symbolSize": 10}
        series.append({**dotted, "itemStyle": style, "color": colour(k), "symbolOffset": offset})
        keys.append(Key(name, colour(k), "spot"))
    made = option(_steps(seen), _rows(names), series, item=True)
    view = View("horizons", made, tuple(keys), (), grid=True)
    at_once = " At the left edge: 0, nothing is remembered." if 0.0 in seen else ""
    return Figure(
        title="Horizon of every layer",
        told="Steps until a thousandth is left. A triangle lies beyond the window; a layer without "
        f"a dot shows no horizon.{at_once}",
        label=f"Dot plot of the horizons of {len(names)} layers under {len(queries)} queries.",
        views=(view,),
        tables=(_table(layers, more),),
        shape=f"rows-{min(max(len(names), 3), 40)}",
    )


def _reached(curve: Curve) -> tuple[float | None, bool]:
    """The lag that is drawn, and whether the horizon lies beyond it."""
    if curve.horizon is not None:
        return float(curve.horizon), False
    if wording.horizon(curve) in (wording.NOTHING, wording.UNKNOWN):
        return None, False
    return float(points(curve)[0][-1]), True


def _steps(lags: list[float]) -> dict[str, Any]:
    """A logarithmic axis; 0, where there is one, has a place of its own left of one step."""
    made = powers("horizon (steps)", lags, gap=28)
    if 0.0 not in lags:
        return made
    made["axisLabel"]["formatter"] = "zero"
    return {**made, "min": ZERO, "interval": 1}


def _rows(names: list[str]) -> dict[str, Any]:
    made = axis("", gap=8, kind="category", data=names, inverse=True)
    label = {"width": 150, "margin": 16, "overflow": "truncate", "interval": 0}
    return {**made, "axisLabel": label if len(names) <= 40 else {**label, "interval": "auto"}}


def _curves(layers: Layers, detail: Detail, more: str) -> Figure:
    """The curves of one query at a time, coloured by depth."""
    views, tables, silent = [], [], []
    for query in _queries(layers):
        curves = {n: c[query] for n, c in layers.items() if query in c and len(points(c[query])[0])}
        if not any(map(is_heard, curves.values())):
            silent += [clean(query, limit=60)] if curves else []
            continue
        hues = [depth_colour(k, len(curves)) for k in range(len(curves))]
        strokes = [stroke(k, len(curves)) for k in range(len(curves))]
        series = [
            part
            for (name, curve), hue, one in zip(curves.items(), hues, strokes, strict=True)
            for part in shape(name, drawn(curve, detail), hue, lineStyle=one.style())
        ]
        keys = tuple(
            Key(name, hue, one.sign) for name, hue, one in zip(curves, hues, strokes, strict=True)
        )
        made = option(lag_axis(curves.values()), memory_axis(curves.values()), series)
        part = counted(curves.values(), series)
        tip, label = ("lag", "memory"), clean(query, limit=60)
        views.append(View(label, made, keys, tip, lag=True, drawn=part))
        tables.append(
            curves_table(f"{clean(query, limit=60)}: memory by lag and layer", curves, detail)
        )
    hushed = f" Nothing above the floor in any layer: {', '.join(silent)}." if silent else ""
    return Figure(
        title="Curves of the layers",
        told=f"From the first layer to the last along the colour scale{more}.{hushed}",
        label=f"Line plot of memory by lag for {len(layers)} layers, one query at a time.",
        views=tuple(views),
        tables=(_table(layers, more), *tables),
        choice="Query",
        shape="tall",
    )


def _table(layers: Layers, more: str) -> Table:
    rows = [
        (
            name,
            clean(query, limit=60),
            clean(curve.decay.kind),
            wording.strength(curve),
            wording.window(curve),
            wording.half_life(curve),
            wording.horizon(curve),
        )
        for name, curves in layers.items()
        for query, curve in curves.items()
    ]
    columns = ("layer", "query", "decay", "rate or exponent", "window", "half-life", "horizon")
    return Table(f"Verdict by layer and query{more}", columns, rows, dense=True)
