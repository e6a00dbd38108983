"""E(beta) with radii, and the number formats as points on the same axis."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from memaudit.errors import clean
from memaudit.precision.result import Precision
from memaudit.reports import wording
from memaudit.reports.page.axes import colour, digits, line, mark, option, pairs, powers
from memaudit.reports.page.detail import partly
from memaudit.reports.page.figure import Figure, Key, View, unique
from memaudit.reports.page.markup import notes
from memaudit.reports.page.section import Section
from memaudit.reports.page.strokes import stroke
from memaudit.reports.page.table import Table, number
from memaudit.reports.precision_table import gravest, rounding_verdict
from memaudit.reports.stability_table import UNTIL, radius
from memaudit.stability.result import Stability

if TYPE_CHECKING:
    from memaudit.precision.result import Rounding
    from memaudit.report import Report
    from memaudit.reports.page.detail import Detail
    from memaudit.reports.page.markup import Markup
    from memaudit.stability.result import PerturbationCurve

LEAD = (
    "How much the answers change when weights move by at most beta: a lower bound of the worst "
    "case. The radius is the largest move before a mode reaches the boundary, or the error the "
    "size of the answers: 'until' says which. Number formats are moves, too."
)
#: Errors so many times the size of the answers are not drawn: the rest would be squeezed.
ABOVE = 100.0
FORMATS = "number formats"


def stability_section(report: Report, detail: Detail) -> Section | None:
    """E(beta) of every part, and what number formats do."""
    item = report.stability if isinstance(report.stability, Stability) else None
    formats = report.precision if isinstance(report.precision, Precision) else None
    parts = (item, *item.others)[: detail.lines] if item is not None else ()
    rounded = (formats, *formats.others)[: detail.lines] if formats is not None else ()
    blocks: list[Markup | None] = []
    if item is not None:
        blocks += [_radii(parts).markup(), _figure(parts, rounded, detail).markup()]
    if any(part.roundings for part in rounded):
        blocks.append(_formats(rounded, detail).markup())
    blocks.append(notes(*(clean(p.note, limit=600) for p in (*parts, *rounded))))
    title = (
        "Stability and precision" if rounded and parts else "Precision" if rounded else "Stability"
    )
    return Section("stability", title, LEAD if parts else "", blocks) if any(blocks) else None


def _radii(parts: tuple[Stability, ...]) -> Table:
    rows = [
        (
            clean(f"{part.where}: {c.group}" if part.where else c.group, limit=120),
            clean(c.ball),
            radius(c.radius),
            UNTIL.get(c.radius.criterion, clean(c.radius.criterion)),
            wording.NOTHING if c.radius.closed_form is None else number(c.radius.closed_form, 3),
            radius(c.tolerance_radius),
        )
        for part in parts
        for c in part.curves
    ]
    columns = ("weights", "ball", "radius", "until", "exact", "tolerance")
    return Table("How far weights may move", columns, rows)


def _figure(parts: tuple[Stability, ...], rounded: tuple[Precision, ...], detail: Detail) -> Figure:
    """One view per part and ball."""
    views, tables = [], []
    for part in parts:
        same = next((p for p in rounded if p.where == part.where), None)
        for ball in dict.fromkeys(c.ball for c in part.curves):
            curves = [c for c in part.curves if c.ball == ball]
            name = clean(f"{part.where}, {ball}" if part.where else f"{ball} ball", limit=60)
            points = _points(same, ball)[: detail.items]
            views.append(_view(name, part, curves, points))
            tables.append(_table(name, curves))
    first = parts[0]
    how = f"{first.draws} draws" + (" and gradient ascent" if len(first.first.ascent) else "")
    return Figure(
        title="E(beta)",
        told=f"In the {clean(first.norm)} norm, against {clean(first.reference)} of "
        f"{first.horizon} steps; {how}, {first.seeds} seeds. "
        "Upright: radii. Dotted: the size of the answers. "
        f"Tolerance: {clean(first.first.tolerance_radius.criterion)}.",
        label="Line plot of the error by size of the move. "
        + "; ".join(f"{c.group}: radius {radius(c.radius)}" for c in first.curves[:8])
        + ".",
        views=tuple(views),
        tables=tuple(tables),
        choice="Weights",
        shape="tall",
    )


def _points(precision: Precision | None, ball: str) -> list[Rounding]:
    """The formats that lie on the axes of a ball."""
    found = [] if precision is None else list(precision.roundings)
    return [
        r for r in found if 0 < r.betas.get(ball, 0.0) < math.inf and 0 < (r.error or 0) < math.inf
    ]


def _view(
    name: str, part: Stability, curves: list[PerturbationCurve], formats: list[Rounding]
) -> View:
    top = part.scale * ABOVE if part.scale > 0 else math.inf
    errors = np.concatenate([c.errors for c in curves])
    heights = [v for v in errors.tolist() if 0 < v <= top] + [r.error or 0.0 for r in formats]
    heights = [v for v in heights if v <= top] + [part.scale]
    betas = [b for c in curves for b in c.betas.tolist()]
    betas += [r.betas[curves[0].ball] for r in formats]
    across, upward = (
        powers("beta, size of the move", betas, gap=28),
        powers("E(beta)", heights, gap=42),
    )
    series, keys = [], []
    for k, (curve, label) in enumerate(zip(curves, unique(c.group for c in curves), strict=True)):
        inside = curve.errors <= upward["max"]
        one = stroke(k, len(curves))
        symbols = {"showSymbol": True, "symbolSize": 3 + one.width, "lineStyle": one.style()}
        drawn = pairs(curve.betas[inside], curve.errors[inside])
        series.append(line(label, drawn, colour(k), **symbols))
        keys.append(Key(label, colour(k), one.sign))
        at = curve.radius.value
        if across["min"] <= at <= across["max"]:
            upright = [[digits(at), upward["min"]], [digits(at), upward["max"]]]
            series.append(mark(label, upright, colour(k), "dashed"))
    if part.scale > 0:
        level = [[across["min"], part.scale], [across["max"], part.scale]]
        series.append(mark("answers", level, "$soft", "dotted"))
        keys.append(Key("answers", "$soft", "dots"))
    if formats:
        series.append(_dots(formats, curves[0].ball))
        keys.append(Key(FORMATS, "$ink", "diamond"))
    made = option(across, upward, series, item=True)
    return View(name, made, tuple(keys), ("beta", "E(beta)"), grid=True)


def _dots(formats: list[Rounding], ball: str) -> dict[str, Any]:
    """Number formats, each with its name beside it; equal ones share a point."""
    places: dict[tuple[float, float], list[str]] = {}
    for one in formats:
        place = digits(one.betas[ball], 3), digits(one.error or 0.0, 3)
        places.setdefault(place, []).append(clean(one.format, limit=24))
    data = []
    for place, names in sorted(places.items()):
        told = ", ".join(names)
        data.append({"value": list(place), "name": told, "told": told})
    label = {"show": True, "formatter": "name", "color": "$ink", "fontSize": 11, "distance": 7}
    # Names keep clear of curves where they can; where not, the paper shows around the letters.
    label |= {"position": "right", "textBorderColor": "$paper", "textBorderWidth": 3}
    style = {"color": "$ink", "borderColor": "$paper", "borderWidth": 1.5}
    made = {"type": "scatter", "name": FORMATS, "id": "formats", "data": data, "symbol": "diamond"}
    return {**made, "symbolSize": 12, "itemStyle": style, "label": label, "z": 6}


def _table(name: str, curves: list[PerturbationCurve]) -> Table:
    names = unique(c.group for c in curves)
    columns = [dict(zip(c.betas.tolist(), c.errors.tolist(), strict=False)) for c in curves]
    betas = sorted({b for c in columns for b in c})
    rows = [(number(b), *(number(c.get(b)) for c in columns)) for b in betas]
    return Table(f"E(beta), {name}", ("beta", *names), rows, dense=True)


def _formats(parts: tuple[Precision, ...], detail: Detail) -> Table:
    """One row per format; of a host that part which bears it worst."""
    rows, names = [], list(dict.fromkeys(r.format for p in parts for r in p.roundings))
    for name in names[: detail.items]:
        where, worst = gravest(parts, name)
        word, _ = rounding_verdict(worst)
        verdict = f"{word}: {clean(where, limit=80)}" if where else word
        margins = [m for layer in worst.layers if (m := layer.margin_after) is not None]
        rows.append(
            (
                clean(name, limit=40),
                *(number(worst.betas.get(ball), 3) for ball in ("max-abs", "spectral")),
                wording.NOTHING if worst.relative is None else _percent(worst.relative),
                number(min(margins, default=None), 3),
                verdict,
                clean(worst.note, limit=300),
            )
        )
    columns = ("format", "max-abs move", "spectral move", "error", "margin", "verdict", "note")
    more = partly(len(rows), len(names), "formats")
    return Table(f"Number formats of the recurrent weights{more}", columns, rows)


def _percent(share: float) -> str:
    return "infinite" if math.isinf(share) else f"{100 * share:.3g} %"
