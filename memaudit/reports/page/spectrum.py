"""Eigenvalues in the complex plane, and their time scales."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from memaudit.errors import clean
from memaudit.numerics.predictions import predictions
from memaudit.reports import wording
from memaudit.reports.depth import steps
from memaudit.reports.page.axes import axis, colour, depth_colour, digits, option, powers
from memaudit.reports.page.detail import partly, spread
from memaudit.reports.page.figure import Figure, Key, View, unique
from memaudit.reports.page.markup import Markup, notes, tag
from memaudit.reports.page.plane import FARTHEST, circle, drawable, mode, plane, scale, size
from memaudit.reports.page.section import Section, grid
from memaudit.reports.page.table import Table, number
from memaudit.reports.placing import placed
from memaudit.spectrum.result import MOST_STORED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memaudit.report import Report
    from memaudit.reports.page.detail import Detail
    from memaudit.spectrum.result import LayerSpectrum as Spectrum

LEAD = (
    "Eigenvalues of one step of every recurrent layer. Inside the unit circle a mode decays, on it "
    "it stays for ever, beyond it it grows; the margin is the distance of the slowest mode."
)
ALL = "all layers"
#: Circles so near each other are one line at the size of the plot.
NEAR = 0.005


def spectrum_section(report: Report, detail: Detail) -> Section | None:
    """Every recurrent layer that has a spectrum."""
    if not report.spectrum:
        return None
    spectra = report.spectrum
    kept = [spectra[k] for k in spread(len(spectra), detail.lines).tolist()]
    labels = unique(placed(s.where, s.layer) for s in kept)
    named = dict(zip(labels, kept, strict=True))
    more = partly(len(kept), len(spectra), "layers")
    modes, scales = _plane(named, detail), _scales(named, detail)
    noted = [clean(item.note, limit=600) for item in kept if item.note]
    blocks = [
        _layers(named, more).markup(),
        grid(
            modes.markup(),
            tag("div", scales.markup(), notes(*noted), _predicted(report, detail), class_="column"),
            kind="grid two",
        ),
    ]
    return Section("spectrum", "Spectrum", LEAD, blocks)


def _layers(named: dict[str, Spectrum], more: str) -> Table:
    rows = [
        (
            name,
            clean(item.cell, limit=60),
            clean(item.parameterization, limit=60),
            f"{item.count:,}",
            f"{item.margin:.3g}",
            steps(item.time_scale),
            _range(item),
            _exponent(item),
        )
        for name, item in named.items()
    ]
    columns = ("recurrence", "cell", "form", "modes", "margin", "time scale", "over data")
    return Table(f"Recurrent layers{more}", (*columns, "Lyapunov"), rows)


def _plane(named: dict[str, Spectrum], detail: Detail) -> Figure:
    """All layers, then each with its operating points."""
    views = [_complex(ALL, {n: s.eigenvalues for n, s in named.items()}, named.values(), detail)]
    if len(named) == 1:
        views = []
    for name, item in named.items():
        clouds = {f"at {p.at}": p.eigenvalues for p in (item, *item.points[: detail.lines])}
        views.append(_complex(name, clouds, [item], detail))
    tables = [_slowest(name, item, detail) for name, item in named.items()]
    hidden = any(abs(item.margin) < NEAR for item in named.values())
    near = ", below the solid line where the margin is too small to be seen" if hidden else ""
    return Figure(
        title="Complex plane",
        told=f"Solid: the unit circle, the boundary. Dashed: the slowest mode{near}.",
        hint="Drag to zoom in.",
        label="Scatter plot of eigenvalues around the unit circle. "
        + "; ".join(f"{n}: margin {s.margin:.3g}" for n, s in list(named.items())[:8])
        + ".",
        views=tuple(views),
        tables=tuple(tables),
        choice="Layer",
        shape="square",
    )


def _complex(
    view: str, clouds: dict[str, np.ndarray], items: Iterable[Spectrum], detail: Detail
) -> View:
    listed = list(items)
    names = unique(clouds)
    share = max(detail.dots // max(len(clouds), 1), 1)
    margin = min(item.margin for item in listed)
    values = [drawable(cloud) for cloud in clouds.values()]
    far = max([1.0, *(float(np.abs(v).max()) for v in values if len(v))])
    series, keys = [], [Key("unit circle", "$ink")]
    if abs(1 - margin) <= FARTHEST:
        series.append(circle("margin", 1 - margin, "$accent", "dashed"))
        keys.append(Key("margin", "$accent", "dash"))
    for k, (name, cloud) in enumerate(zip(names, values, strict=True)):
        hue = depth(k, len(names))
        slow = np.argsort(-np.abs(cloud), kind="stable")
        points = [mode(v) for v in cloud[slow[spread(len(cloud), share)]].tolist()]
        style = {"color": hue, "opacity": 0.75}
        # Modes on top of each other are rings: what lies above is smaller.
        wide = round(6 + 4 * (1 - k / max(len(names) - 1, 1)), 1) if len(names) > 1 else 6
        dotted = {"type": "scatter", "name": name, "data": points, "symbolSize": wide, "z": 3}
        series.append({**dotted, "color": hue, "itemStyle": style})
        keys.append(Key(name, hue, "spot"))
    made = plane(far, series)
    tip = ("real", "imaginary", "|lambda|", "time scale")
    shown = sum(len(s["data"]) for s in series if s["type"] == "scatter")
    # A report that comes from a file has the slowest modes only.
    whole = sum(item.count for item in listed) * (len(clouds) if len(listed) == 1 else 1)
    part = shown, max(whole, shown)
    return View(view, made, tuple(keys), tip, grid=True, drawn=part, noun="modes")


def depth(place: int, count: int) -> str:
    """The colour of a layer: a scale where there are many, else colours that are far apart."""
    return depth_colour(place, count) if count > 6 else colour(place)


def _scales(named: dict[str, Spectrum], detail: Detail) -> Figure:
    """One row per layer, a dot per mode, from fast to slow."""
    names = list(named)
    share = max(detail.dots // len(names), 1)
    dots, seen, endless, count = [], [1.0], 0, 0
    for row, item in enumerate(named.values()):
        values = [scale(v) for v in np.asarray(item.eigenvalues).ravel().tolist()]
        finite = np.sort(np.asarray([v for v in values if 0 < v < math.inf]))[::-1]
        endless += sum(map(math.isinf, values))
        count += len(finite) + max(item.count - len(values), 0)
        for slow in finite[spread(len(finite), share)].tolist():
            seen.append(max(slow, 1e-2))
            told = f"{names[row]}: {steps(slow)} steps"
            dots.append({"value": [digits(max(slow, 1e-2)), row], "told": told})
    style = {"color": "$c1", "opacity": 0.45}
    modes = {"type": "scatter", "name": "modes", "data": dots, "symbolSize": 8}
    rows = axis("", gap=8, kind="category", data=names, inverse=True)
    rows["axisLabel"] = {
        "width": 110,
        "margin": 16,
        "overflow": "truncate",
        "interval": 0 if len(names) <= 40 else "auto",
    }
    made = option(
        powers("time scale (steps)", seen, gap=28),
        rows,
        [{**modes, "itemStyle": style, "color": "$c1"}],
        item=True,
    )
    keys, part = (Key("modes", "$c1", "spot"),), (len(dots), count)
    beyond = f" {endless} on or beyond the boundary are not drawn." if endless else ""
    return Figure(
        title="Time scales",
        told=f"Steps until a mode has fallen to 1/e.{beyond}",
        label=f"Dot plot of the time scales of {len(names)} layers.",
        views=(View("modes", made, keys, (), grid=True, drawn=part, noun="modes"),),
        tables=(_layers(named, ""),),
        shape=f"rows-{min(max(len(names), 5), 40)}",
    )


def _slowest(name: str, item: Spectrum, detail: Detail) -> Table:
    values = np.asarray(item.eigenvalues).ravel()
    slow = np.argsort(-np.abs(values), kind="stable")[: max(detail.rows // 4, 4)]
    rows = [
        (str(k + 1), number(v.real), number(v.imag), number(size(v)), steps(scale(v)))
        for k, v in enumerate(values[slow].tolist())
    ]
    caption = f"{name}, at {clean(item.at, limit=60)}: slowest modes"
    columns = ("mode", "real", "imaginary", "absolute", "time scale")
    caption += partly(len(slow), item.count, "modes", stored=MOST_STORED)
    return Table(caption, columns, rows, dense=True)


def _predicted(report: Report, detail: Detail) -> Markup | None:
    """What the slowest mode says beside what a curve says."""
    pairs = [item for item in predictions(report) if item.measured is not None]
    rows = [
        (
            clean(f"{p.where}: {p.query}" if p.where else p.query, limit=120),
            number(p.rate, 4),
            f"{p.measured:.4g} {wording.interval(p.curve)}".strip(),
            clean(f"{p.layer}, {p.at.partition(',')[0]}", limit=120),
        )
        for p in pairs[: detail.items]
    ]
    columns = ("query", "predicted rate", "measured rate", "slowest mode")
    caption = "Rates: predicted by the slowest mode, and measured"
    return Table(caption, columns, rows).markup() if rows else None


def _range(item: Spectrum) -> str:
    scales = sorted(point.time_scale for point in item.points)
    return " to ".join(dict.fromkeys(map(steps, (*scales[:1], *scales[-1:])))) or wording.NOTHING


def _exponent(item: Spectrum) -> str:
    if item.lyapunov is None or item.lyapunov_interval is None:
        return wording.NOTHING
    low, high = item.lyapunov_interval
    return f"{item.lyapunov:.3g} [{low:.3g}, {high:.3g}]"
