"""Two reports on top of each other: their curves, their modes and their E(beta)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from memaudit.errors import clean
from memaudit.reports import wording
from memaudit.reports.linear_layers import as_curves
from memaudit.reports.page.axes import digits, line, mark, option, pairs, powers
from memaudit.reports.page.curves import (
    counted,
    curves_table,
    drawn,
    lag_axis,
    memory_axis,
    points,
    shape,
)
from memaudit.reports.page.detail import spread
from memaudit.reports.page.figure import Figure, Key, View
from memaudit.reports.page.memory import DOTS, horizon_dot, said
from memaudit.reports.page.table import Table, number
from memaudit.reports.placing import placed
from memaudit.stability.result import Stability

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memaudit.memory.result import Curve
    from memaudit.report import Report
    from memaudit.reports.page.detail import Detail
    from memaudit.stability.result import PerturbationCurve

    Curves = Mapping[str, Curve]
    Pair = tuple[Curve | None, Curve | None]

BEFORE, AFTER = "before", "after"
#: Earlier curves lie below, broad and broken; later ones are whole, and hide none of them.
STYLES: dict[str, tuple[str, dict[str, Any]]] = {
    BEFORE: ("$c8", {"type": [9, 6], "width": 5, "opacity": 0.6, "cap": "butt"}),
    AFTER: ("$c1", {"width": 2}),
}


def memory_figures(before: Curves, after: Curves, detail: Detail) -> list[Figure]:
    """One figure per query of either report."""
    queries = list(dict.fromkeys((*before, *after)))[: detail.items]
    made = [(q, (before.get(q), after.get(q))) for q in queries]
    return [_curves_figure(query, {"": pair}, detail) for query, pair in made if _seen(pair)]


def layer_figures(before: Report, after: Report, detail: Detail) -> list[Figure]:
    """One figure per query, with a view per layer that both reports have."""
    both = [layer for layer in before.layers if layer in after.layers]
    kept = [both[k] for k in spread(len(both), detail.lines).tolist()]
    queries = dict.fromkeys(q for layer in kept for q in before.layers[layer])
    made = []
    for query in queries:
        found: dict[str, Pair] = {
            layer: (before.layers[layer].get(query), after.layers[layer].get(query))
            for layer in kept
        }
        views = {layer: pair for layer, pair in found.items() if _seen(pair)}
        if views:
            made.append(_curves_figure(f"{clean(query, limit=60)} by layer", views, detail))
    return made


def exact_figures(before: Report, after: Report, detail: Detail) -> list[Figure]:
    """One figure with a view per linear layer whose closed form both reports have."""
    one, other = (
        {placed(c.where, c.layer): c for c in report.closed_form} for report in (before, after)
    )
    both = [layer for layer in one if layer in other]
    kept = [both[k] for k in spread(len(both), detail.lines).tolist()]
    pairs_of: dict[str, Pair] = {
        layer: (as_curves(one[layer])[0], as_curves(other[layer])[0]) for layer in kept
    }
    views = {layer: pair for layer, pair in pairs_of.items() if _seen(pair)}
    return [_curves_figure("Closed form by layer", views, detail)] if views else []


def stability_figure(before: Any, after: Any) -> Figure | None:
    """E(beta) of every group of weights that both reports moved."""
    if not isinstance(before, Stability) or not isinstance(after, Stability):
        return None
    one, other = ({(c.group, c.ball): c for c in part.curves} for part in (before, after))
    shared = {
        f"{group}, {ball}": (one[group, ball], other[group, ball])
        for group, ball in one
        if (group, ball) in other
    }
    if not shared:
        return None
    return Figure(
        title="E(beta)",
        told="Error by size of the move of the weights; upright: the radii.",
        label="Line plot of E(beta) before and after.",
        views=tuple(_stability_view(name, pair) for name, pair in shared.items()),
        tables=tuple(_stability_table(name, pair) for name, pair in shared.items()),
        choice="Weights",
        shape="tall",
    )


def _seen(pair: Pair) -> bool:
    return any(curve is not None and len(points(curve)[0]) for curve in pair)


def _curves_figure(title: str, found: dict[str, Pair], detail: Detail) -> Figure:
    views, tables = [], []
    for name, pair in found.items():
        curves = {
            side: c
            for side, c in zip((BEFORE, AFTER), pair, strict=True)
            if c is not None and len(points(c)[0])
        }
        series, keys = [], []
        for side, curve in curves.items():
            hue, style = STYLES[side]
            series += shape(side, drawn(curve, detail), hue, lineStyle=style)
            series += horizon_dot(side, curve, hue)
            keys.append(Key(side, hue, "dash broad" if side == BEFORE else "line"))
        made = option(lag_axis(curves.values()), memory_axis(curves.values()), series)
        label = clean(name, limit=60)
        part, tip = counted(curves.values(), series), ("lag", "memory")
        views.append(View(label or title, made, tuple(keys), tip, lag=True, drawn=part))
        caption = f"{clean(title, limit=80)}{f', {label}' if label else ''}: memory by lag"
        tables.append(curves_table(caption, curves, detail))
    first = next(iter(found.values()))
    both = [wording.NOTHING if c is None else said(c) for c in first]
    words = " → ".join(dict.fromkeys(both))
    dotted = any(c is not None and horizon_dot("", c, "") for pair in found.values() for c in pair)
    told = [*([f"{words}."] if len(found) == 1 else []), *([DOTS] if dotted else [])]
    return Figure(
        title=clean(title, limit=80),
        told=" ".join(told),
        label=f"Line plot of memory by lag before and after. {words}.",
        views=tuple(views),
        tables=tuple(tables),
        choice="Layer",
        shape="tall" if len(found) > 1 else "",
    )


def _stability_view(name: str, pair: tuple[PerturbationCurve, PerturbationCurve]) -> View:
    finite = [c.errors[np.isfinite(c.errors)] for c in pair]
    upward = powers("E(beta)", [v for errors in finite for v in errors.tolist()], gap=42)
    across = powers("beta", [b for c in pair for b in c.betas.tolist()], gap=28)
    series, keys = [], []
    for side, curve in zip((BEFORE, AFTER), pair, strict=True):
        hue, style = STYLES[side]
        drawn_points = pairs(curve.betas, curve.errors)
        series.append(line(side, drawn_points, hue, lineStyle=style, showSymbol=True))
        at = curve.radius.value
        if across["min"] <= at <= across["max"]:
            upright = [[digits(at), upward["min"]], [digits(at), upward["max"]]]
            series.append({**mark(side, upright, hue, "dotted"), "id": f"aux radius {side}"})
        keys.append(Key(side, hue, "dash broad" if side == BEFORE else "line"))
    made = option(across, upward, series)
    return View(clean(name, limit=60), made, tuple(keys), ("beta", "E(beta)"), grid=True)


def _stability_table(name: str, pair: tuple[PerturbationCurve, PerturbationCurve]) -> Table:
    one, other = (dict(zip(c.betas.tolist(), c.errors.tolist(), strict=False)) for c in pair)
    rows = [(number(b), number(one.get(b)), number(other.get(b))) for b in sorted({*one, *other})]
    return Table(f"E(beta), {clean(name, limit=60)}", ("beta", BEFORE, AFTER), rows, dense=True)
