"""The memory curves: all of them in one picture, then each with what was concluded from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memaudit.errors import clean
from memaudit.reports import wording
from memaudit.reports.curve_plot import floor_is_drawn
from memaudit.reports.page.axes import colour, line, mark, option, pairs
from memaudit.reports.page.curves import (
    counted,
    curves_table,
    drawn,
    fit,
    is_heard,
    lag_axis,
    marks,
    memory_axis,
    points,
    shape,
)
from memaudit.reports.page.detail import outline, partly
from memaudit.reports.page.figure import Figure, Key, View, unique
from memaudit.reports.page.section import Section, grid
from memaudit.reports.page.strokes import stroke
from memaudit.reports.page.table import Table, number

if TYPE_CHECKING:
    from memaudit.memory.result import Curve
    from memaudit.report import Report
    from memaudit.reports.page.detail import Detail

LEAD = (
    "How much of an input is still in the answers so many steps later: the largest response over "
    "all probes, on a logarithmic scale. Straight on linear lags is exponential; straight on "
    "logarithmic lags is a power law."
)
DOTS = "Dots mark the horizons."
HINT = "Drag to zoom, double-click to go back; press a name to hide its curve."


def memory_section(report: Report, detail: Detail) -> Section:
    """Every query of a report."""
    curves = dict(list(report.memory.items())[: detail.lines])
    with_points = {q: c for q, c in curves.items() if len(points(c)[0])}
    power_law = any(c.decay.kind == "polynomial" for c in curves.values())
    names = dict(zip(with_points, unique(with_points), strict=True))
    blocks = []
    if len(with_points) > 1 and any(map(is_heard, with_points.values())):
        blocks.append(overview(with_points, names, detail, logarithmic=power_law).markup())
    panels = [
        panel(names[query], curve, colour(k), detail, logarithmic=power_law).markup()
        for k, (query, curve) in enumerate(with_points.items())
    ]
    blocks.append(grid(*panels, kind="grid" if len(panels) > 1 else "single"))
    lead = LEAD if with_points else "No curve was measured."
    return Section("memory", "Memory", lead, blocks, bool(with_points), power_law)


def overview(
    curves: dict[str, Curve], names: dict[str, str], detail: Detail, *, logarithmic: bool
) -> Figure:
    """All curves, and their horizons as dots."""
    series: list[dict[str, Any]] = []
    # A curve that is nowhere, or a point, lies on nothing: the others need not be broad for it.
    lines = [k for k, c in enumerate(curves.values()) if (points(c)[1] > 0).sum() > 1]
    bands = {k: stroke(place, len(lines)) for place, k in enumerate(lines)}
    strokes = [bands.get(k, stroke(0, 1)) for k in range(len(curves))]
    for k, (query, curve) in enumerate(curves.items()):
        style = strokes[k].style()
        series += shape(names[query], drawn(curve, detail), colour(k), lineStyle=style)
        series += horizon_dot(names[query], curve, colour(k))
    made = option(lag_axis(curves.values()), memory_axis(curves.values()), series)
    keys = tuple(Key(names[q], colour(k), strokes[k].sign) for k, q in enumerate(curves))
    part = counted(curves.values(), series)
    table = curves_table(
        "Memory by lag and query", {names[q]: c for q, c in curves.items()}, detail
    )
    return Figure(
        title="All queries",
        told=DOTS if any(horizon_dot("", c, "") for c in curves.values()) else "",
        hint=HINT,
        label=f"Line plot of memory by lag: {'; '.join(map(spoken, curves.values()))}.",
        views=(View("all", made, keys, ("lag", "memory"), lag=True, drawn=part),),
        tables=(table,),
        shape="tall",
        logarithmic=logarithmic,
    )


def panel(name: str, curve: Curve, hue: str, detail: Detail, *, logarithmic: bool) -> Figure:
    """One curve with its median, its floor, the window and the line of its fit, its horizon.

    Where nothing rises above the floor there is nothing to draw but noise.
    """
    tables = (facts_table(name, curve), _table(name, curve, detail))
    if not is_heard(curve):
        told = f"{said(curve)}. {silent(curve)}"
        return Figure(title=name, told=told, label="", views=(), tables=tables)
    parts = _parts(curve, hue, detail)
    series = [one for _, drawn_parts in parts for one in drawn_parts]
    made = option(lag_axis([curve]), memory_axis([curve], floors=True), series)
    keys, part = tuple(key for key, _ in parts), counted([curve], parts[0][1])
    return Figure(
        title=name,
        told=f"{said(curve)}.",
        label=f"Line plot of {spoken(curve)}.",
        views=(View(name, made, keys, ("lag", "memory"), lag=True, drawn=part),),
        tables=tables,
        logarithmic=logarithmic,
    )


def _parts(curve: Curve, hue: str, detail: Detail) -> list[tuple[Key, list[dict[str, Any]]]]:
    """Everything that is drawn of a curve, each with its entry in the legend."""
    lags, _ = points(curve)
    axis = memory_axis([curve], floors=True)
    bottom, top, first, last = axis["min"], axis["max"], int(lags[0]), int(lags[-1])
    fitted = fit(curve)
    # The fit lies on the curve that it fits: both are seen when the one below is broader.
    broad = {"width": 3.5 if fitted else 2}
    supremum = shape("supremum", drawn(curve, detail), hue, lineStyle=broad, z=4)
    found = [(Key("supremum", hue), supremum)]
    kept = detail.kept(curve.median)
    if len(kept) and not curve.exact:
        middle = pairs(curve.lags[kept], curve.median[kept])
        thin = {"width": 1.25, "opacity": 0.75}
        found.append((Key("median", "$soft"), shape("median", middle, "$soft", lineStyle=thin)))
    if fitted:
        dashed = {"type": [6, 5], "width": 1.75}
        key = Key("fit", "$ink", "dash")
        found.append((key, [line("fit", fitted, "$ink", lineStyle=dashed, z=5)]))
    if curve.decay.window is not None:
        found.append((Key("window", "$window", "area"), [_window(curve)]))
    if floor_is_drawn(curve):
        floor = [[first, curve.floor], [last, curve.floor]]
        found.append((Key("floor", "$soft", "dots"), [mark("floor", floor, "$soft", "dotted")]))
    if curve.horizon is not None and first <= curve.horizon <= last:
        upright = [[curve.horizon, bottom], [curve.horizon, top]]
        drawn_mark = mark("horizon", upright, "$horizon", "dashed")
        found.append((Key("horizon", "$horizon", "dash"), [drawn_mark]))
    return found


def horizon_dot(name: str, curve: Curve, hue: str) -> list[dict[str, Any]]:
    """The horizon as a dot on its curve, where it lies inside."""
    if curve.horizon is None:
        return []
    lags, values = points(curve)
    at = values[lags == curve.horizon]
    height = float(at[0]) if len(at) else 0.0
    if not height > 0:
        return []
    dot = {"type": "scatter", "name": name, "id": f"aux dot {name}", "silent": True, "z": 6}
    style = {"color": hue, "borderColor": "$paper", "borderWidth": 2}
    return [{**dot, "data": [[curve.horizon, height]], "symbolSize": 11, "itemStyle": style}]


def said(curve: Curve) -> str:
    """The verdict about a curve in a few words."""
    told = [clean(curve.decay.kind)]
    told += [] if (curve.values > 0).any() else ["zero at every lag"]
    strength = f"{wording.strength(curve)} {wording.interval(curve)}".strip()
    told += [strength] if strength != wording.NOTHING else []
    horizon = wording.horizon(curve)
    if horizon == wording.UNKNOWN:
        told.append(wording.HIDDEN)
    elif horizon != wording.NOTHING:
        told.append(f"horizon {horizon}")
    return ", ".join(told)


def silent(curve: Curve) -> str:
    """Why a curve is not drawn."""
    count = len(points(curve)[0])
    lags = f"any of {count:,} lags" if count > 1 else "the only lag"
    return f"Not drawn: nothing rises above the numerical floor ({curve.floor:.3g}) at {lags}."


def spoken(curve: Curve) -> str:
    """The verdict with the name of its query, for those who hear it."""
    return f"{clean(curve.query)}: {said(curve)}"


def facts_table(name: str, curve: Curve) -> Table:
    """What was concluded from a curve, number by number."""
    rows = [
        ("kind", clean(curve.decay.kind)),
        ("rate or exponent", wording.strength(curve)),
        ("interval", wording.interval(curve) or wording.NOTHING),
        ("window (lags)", wording.window(curve)),
        ("confidence", wording.confidence(curve)),
        ("half-life", wording.half_life(curve)),
        ("horizon", wording.horizon(curve)),
        ("epsilon of the horizon", number(curve.epsilon)),
        ("numerical floor", number(curve.floor)),
        ("probes", wording.probes(curve)),
        ("normalisation", clean(curve.normalization)),
        ("status", curve.status.value),
    ]
    return Table(f"Verdict about {name}", ("fact", "value"), rows, dense=True)


def _window(curve: Curve) -> dict[str, Any]:
    first, last = curve.decay.window or (0, 0)
    area = {"silent": True, "itemStyle": {"color": "$window"}}
    area["data"] = [[{"xAxis": max(first, 1)}, {"xAxis": last}]]
    return {"type": "line", "name": "window", "id": "aux window", "data": [], "markArea": area}


def _table(name: str, curve: Curve, detail: Detail) -> Table:
    lags, values = points(curve)
    told = outline(values, detail.rows, marks=marks(curve, lags))
    kept = set(lags[told].tolist())
    medians = zip(curve.lags.tolist(), curve.median.tolist(), strict=False)
    middle = {lag: median for lag, median in medians if lag in kept}
    rows = [
        (str(lag), number(value), number(middle.get(lag)))
        for lag, value in zip(lags[told].tolist(), values[told].tolist(), strict=True)
    ]
    more = partly(len(told), len(lags), "lags")
    return Table(f"{name} by lag{more}", ("lag", "supremum", "median"), rows, dense=True)
