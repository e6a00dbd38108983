"""The modes of two reports in one complex plane: rings where they were, dots where they are."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from memaudit.errors import clean
from memaudit.reports.depth import steps
from memaudit.reports.page.detail import partly, spread
from memaudit.reports.page.figure import Figure, Key, View, unique
from memaudit.reports.page.overlay import AFTER, BEFORE, STYLES
from memaudit.reports.page.plane import drawable, mode, plane, scale, size
from memaudit.reports.page.table import Table, number
from memaudit.reports.placing import placed
from memaudit.spectrum.result import MOST_STORED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memaudit.report import Report
    from memaudit.reports.page.detail import Detail
    from memaudit.spectrum.result import LayerSpectrum as Spectrum

    Pair = tuple[Spectrum, Spectrum]

ALL = "all layers"
COLUMNS = ("real", "imaginary", "absolute", "time scale")


def spectrum_figure(before: Report, after: Report, detail: Detail) -> Figure | None:
    """Every recurrent layer that both reports have a spectrum of."""
    one, other = ({(s.where, s.layer): s for s in r.spectrum} for r in (before, after))
    shared = [(one[key], other[key]) for key in one if key in other]
    if not shared:
        return None
    kept = [shared[k] for k in spread(len(shared), detail.lines).tolist()]
    names = unique(placed(s.where, s.layer) for s, _ in kept)
    views = [_view(name, [pair], detail) for name, pair in zip(names, kept, strict=True)]
    if len(kept) > 1:
        views.insert(0, _view(ALL, kept, detail))
    more = partly(len(kept), len(shared), "layers")
    return Figure(
        title="Complex plane",
        told=f"Rings: before. Dots: after. Solid: the unit circle, the boundary{more}.",
        label="Scatter plot of eigenvalues around the unit circle, before and after.",
        views=tuple(views),
        tables=tuple(_table(name, pair, detail) for name, pair in zip(names, kept, strict=True)),
        choice="Layer",
        shape="square",
    )


def _view(name: str, pairs: Sequence[Pair], detail: Detail) -> View:
    share = max(detail.dots // (2 * len(pairs)), 1)
    series: list[dict[str, Any]] = []
    keys, far, count = [], 1.0, 0
    for place, side in enumerate((BEFORE, AFTER)):
        points: list[list[float | str]] = []
        for pair in pairs:
            values = drawable(pair[place].eigenvalues)
            count += pair[place].count
            slow = np.argsort(-np.abs(values), kind="stable")[spread(len(values), share)]
            points += [mode(v) for v in values[slow].tolist()]
            far = max(far, float(np.abs(values).max(initial=0.0)))
        series.append(_cloud(side, points))
        keys.append(Key(side, STYLES[side][0], "ring" if side == BEFORE else "spot"))
    shown = sum(len(s["data"]) for s in series)
    made = plane(far, series)
    tip = ("real", "imaginary", "|lambda|", "time scale")
    drawn = (shown, max(count, shown))
    unit = Key("unit circle", "$ink")
    return View(name, made, (unit, *keys), tip, grid=True, drawn=drawn, noun="modes")


def _cloud(side: str, points: list[list[float | str]]) -> dict[str, Any]:
    """Rings are as wide as the dots inside them and their rim: neither hides the other."""
    hue = STYLES[side][0]
    ring = {"color": "transparent", "borderColor": hue, "borderWidth": 1.5}
    style = ring if side == BEFORE else {"color": hue}
    made = {"type": "scatter", "name": side, "data": points, "symbolSize": 10, "z": 3}
    if side == AFTER:
        made |= {"symbolSize": 5, "z": 4}
    return {**made, "color": hue, "itemStyle": style}


def _table(name: str, pair: Pair, detail: Detail) -> Table:
    """The slowest modes of both, the first beside the first."""
    listed = [np.asarray(item.eigenvalues).ravel() for item in pair]
    most = max(detail.rows // 4, 4)
    slow = [v[np.argsort(-np.abs(v), kind="stable")[:most]].tolist() for v in listed]
    rows = [
        (str(k + 1), *(cell for side in slow for cell in _cells(side[k : k + 1])))
        for k in range(max(map(len, slow)))
    ]
    columns = ("mode", *(f"{what} {side}" for side in (BEFORE, AFTER) for what in COLUMNS))
    more = partly(len(rows), max(item.count for item in pair), "modes", stored=MOST_STORED)
    return Table(f"{clean(name, limit=60)}: slowest modes{more}", columns, rows, dense=True)


def _cells(found: list[complex]) -> tuple[str, ...]:
    if not found:
        return ("-",) * len(COLUMNS)
    value = found[0]
    told = number(value.real), number(value.imag), number(size(value))
    return *told, "-" if math.isnan(size(value)) else steps(scale(value))
