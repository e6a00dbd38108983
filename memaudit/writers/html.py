"""A document as one page for a browser: nothing is loaded from elsewhere.

Plots are options for ECharts as plain data; colours in them are names of the style sheet, `$c1`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jinja2 import Environment
from markupsafe import Markup

from memaudit.errors import clean
from memaudit.interfaces import AbstractReportFormat
from memaudit.report import SEVERITIES
from memaudit.sections import Axis, Band, Line, Points
from memaudit.writers.scales import (
    circle,
    colour_places,
    drawable,
    is_empty,
    limits,
    outline,
    share,
    spread,
)
from memaudit.writers.terminal import counted, is_numeric, used_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from memaudit.report import Finding, GateResult, Report
    from memaudit.sections import Document, Figure, Mark, Section, Table

#: A page has at most so many bytes, whatever the report is.
MOST_BYTES = 5_000_000
#: Foreign text of one element is cut here; a sentence of a finding may be this long.
LONGEST = 1200
#: A name in a plot is cut here: it must fit a phone.
LONGEST_NAME = 48
#: Colours of the style sheet for series.
COLOURS = 8
#: So few points of a line are marked: between them nothing was measured.
FEW = 80
#: So few labels are written beside their points; more are seen in tooltips only.
LABELLED = 40
#: More curves are told apart by their colour alone: bands so close together would be noise.
OVERLAID = 6
#: A logarithmic axis has at most so many parts.
TICKS = 7
#: So many of many findings stand at the top; this few all stand there.
WORST, ALL = 3, 5
#: So many places of one finding are shown.
PLACES = 6
#: A table of more rows scrolls; a cell of more letters is wrapped.
LONG, WORDY = 14, 32
#: Words in tables that are a verdict, and how they are coloured.
VERDICTS = {"holds": "good", "passed": "good", "better": "good", "safe": "good"}
VERDICTS |= {"fails": "warning", "hit": "error", "worse": "error"}
#: Numbers and short words, most of a page: there is nothing in them to clean.
_PLAIN = re.compile(r"[A-Za-z0-9.+-]{1,40}")
TOO_LARGE = "This part is too large for a page; the JSON report has it."


@dataclass(frozen=True, slots=True)
class Detail:
    """The most of everything: points of a line, rows of a table, series of a plot, items."""

    points: int
    rows: int
    series: int
    items: int
    dots: int


#: The first of these at which a page is small enough is taken.
DETAILS = (
    Detail(points=1024, rows=256, series=64, items=200, dots=2000),
    Detail(points=400, rows=96, series=48, items=100, dots=1000),
    Detail(points=160, rows=48, series=32, items=60, dots=400),
    Detail(points=60, rows=16, series=12, items=24, dots=120),
    Detail(points=16, rows=6, series=4, items=8, dots=30),
)


@dataclass(frozen=True, slots=True)
class Html(AbstractReportFormat):
    """The report for a person with a browser: plots that zoom, tables behind them, light or dark.

    Law: at most `MOST_BYTES`, whatever the report is; a page that shows a part says so.
    """

    name: ClassVar[str] = "html"
    summary: ClassVar[str] = "one page with plots for a browser, which needs no network"
    suffix: ClassVar[str] = ".html"

    def render(self, report: Report) -> str:
        """The page in the finest detail that fits."""
        return render_document(report.document())

    def notebook(self, report: Report) -> str:
        """What a notebook shows of a report."""
        return notebook_html(report)


def render_document(document: Document) -> str:
    """The page of any document in the finest detail that fits.

    What never fits is left out, the largest section first, and says so.
    """
    page = ""
    for detail in DETAILS:
        if detail is not DETAILS[-1] and _least_bytes(document, detail) > MOST_BYTES:
            continue
        page = _rendered(document, detail)
        if len(page.encode()) <= MOST_BYTES:
            return page
    for _ in document.sections:
        document = _without_largest(document)
        page = _rendered(document, DETAILS[-1])
        if len(page.encode()) <= MOST_BYTES:
            break
    return page


def _least_bytes(document: Document, detail: Detail) -> int:
    """What the points of the figures have at least, at ten bytes each: too much is not tried."""
    figures = [f for section in document.sections for f in section.figures[: detail.items]]
    lines = [series for figure in figures for series in figure.series[: detail.series]]
    return 10 * sum(min(len(series.x), detail.points) for series in lines)


def _without_largest(document: Document) -> Document:
    def size(section: Section) -> int:
        texts = sum(len(text) for text in section.text)
        return texts + sum(len(t.rows) for t in section.tables) + 100 * len(section.figures)

    largest = max(document.sections, key=size)
    empty = replace(largest, text=(TOO_LARGE,), tables=(), figures=())
    return replace(
        document, sections=tuple(empty if s is largest else s for s in document.sections)
    )


def _rendered(document: Document, detail: Detail) -> str:
    page = _page(document, detail)
    plots = any(figure["view"] for section in page["sections"] for figure in section["figures"])
    names = ["echarts.common.min.js", "page.js"] if plots else ["page.js"]
    scripts, style = [_file(name) for name in names], _file("style.css")
    rules = [
        "default-src 'none'",
        f"script-src {' '.join(map(_hash, scripts))}",
        f"style-src {_hash(style)}",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return _template().render(
        page=page,
        policy=Markup("; ".join(rules)),
        style=Markup(style),
        scripts=[Markup(script) for script in scripts],
    )


@cache
def _template() -> Any:
    made = Environment(autoescape=True, keep_trailing_newline=True, finalize=_cleaned)
    return made.from_string(_file("page.html.j2"))


def _cleaned(value: Any) -> Any:
    """Foreign text: no control or bidirectional characters, not too long."""
    if isinstance(value, Markup) or not isinstance(value, str) or _PLAIN.fullmatch(value):
        return value
    return clean(value, limit=LONGEST)


@cache
def _file(name: str) -> str:
    return files("memaudit.writers").joinpath("page", name).read_text(encoding="utf-8")


def _hash(code: str) -> str:
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    return f"'sha256-{digest}'"


# The parts of the page, as the template takes them


def _page(document: Document, detail: Detail) -> dict[str, Any]:
    taken: set[str] = {"verdict", "findings", "gates", "reproduce", "palette"}
    sections = [
        _section(section, _ident(section.title, taken), detail) for section in document.sections
    ]
    graves = sorted(document.findings or (), key=lambda f: -SEVERITIES.index(f.severity))
    worst = graves
    if len(graves) > ALL:
        worst = ([f for f in graves if f.severity != "note"] or graves)[:WORST]
    groups = [list(same) for _, same in groupby(graves, key=lambda f: (f.code, f.severity))]
    anchors: set[str] = set()
    subtitle, facts = "", document.facts
    if facts and facts[0][0] == "model":
        subtitle, facts = facts[0][1], facts[1:]
    return {
        "title": document.title,
        "subtitle": subtitle,
        "facts": facts[: detail.items],
        "warnings": document.warnings[: detail.items],
        "headlines": document.headlines[: detail.items],
        "cards": [
            {
                "id": made["id"],
                "title": section.title,
                "line": section.line,
                "spark": next(filter(None, map(_sparkline, section.figures)), ""),
            }
            for section, made in zip(document.sections, sections, strict=True)
            if section.line
        ],
        "hit": [gate.word for gate in document.gates if gate.hit],
        "judged": document.findings is not None,
        "counts": counted(document.findings or ()),
        "worst": [{**_plain(f), "anchor": _anchor(f.code)} for f in worst],
        "more_findings": len(graves) - len(worst),
        "thinned": detail is not DETAILS[0],
        "sections": sections,
        "findings": [_finding(same, anchors) for same in groups[: detail.items]],
        "hidden_findings": max(len(groups) - detail.items, 0),
        "gates": _gates(document.gates[: detail.items]),
        "command": document.command,
        "footer": document.footer,
    }


def _ident(title: str, taken: set[str]) -> str:
    """The place of a section on the page."""
    word = re.sub(r"[^a-z0-9]+", "-", clean(title, limit=60).lower()).strip("-") or "section"
    ident, count = word, 1
    while ident in taken:
        count += 1
        ident = f"{word}-{count}"
    taken.add(ident)
    return ident


def _section(section: Section, ident: str, detail: Detail) -> dict[str, Any]:
    switched = [f for f in section.figures if _can_switch(f)]
    return {
        "id": ident,
        "title": section.title,
        "detail": section.detail,
        "text": section.text[: detail.items],
        "tables": [_table(t, detail, section.title) for t in section.tables[: detail.items]],
        "figures": [_figure(f, detail) for f in section.figures[: detail.items]],
        "switch": clean(switched[0].x.label, limit=24).capitalize() if switched else "",
        "log": any(figure.x.log for figure in switched),
    }


def _plain(finding: Finding) -> dict[str, str]:
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity,
        "message": clean(finding.message, limit=400),
        "where": clean(finding.where),
    }


def _anchor(code: str) -> str:
    return "finding-" + re.sub(r"[^A-Za-z0-9]", "", clean(code, limit=20))


def _finding(same: list[Finding], anchors: set[str]) -> dict[str, Any]:
    first, anchor = same[0], _anchor(same[0].code)
    fresh = anchor not in anchors
    anchors.add(anchor)
    return {
        **_plain(first),
        "anchor": anchor if fresh else "",
        "places": [{"where": clean(f.where), "message": f.message} for f in same[:PLACES]],
        "more": max(len(same) - PLACES, 0),
        "advice": list(dict.fromkeys(f.advice for f in same[:PLACES] if f.advice)),
    }


def _gates(gates: Sequence[GateResult]) -> dict[str, Any] | None:
    if not gates:
        return None
    rows = [(gate.word, "hit" if gate.hit else "passed", gate.reason) for gate in gates]
    return _listed("Gates", ("gate", "verdict", "by what"), rows, quiet=True)


def _table(table: Table, detail: Detail, title: str) -> dict[str, Any]:
    """A table of a section, without columns that have nothing in them."""
    used = used_columns(table)
    texts = [[row[i] for i in used] for row in table.texts()[: detail.rows]]
    caption = table.title or title
    if len(table.rows) > len(texts):
        caption += f"; {len(texts)} of {len(table.rows)} rows, the JSON report has them all"
    made = _listed(
        caption,
        [table.columns[i].name for i in used],
        texts,
        quiet=not table.title and len(table.rows) == len(texts),
        numeric={k for k, i in enumerate(used) if is_numeric(table, i)},
    )
    for column, i in zip(made["columns"], used, strict=True):
        column["help"] = table.columns[i].help
    helped = [f"{c.name}: {c.help}" for i in used if (c := table.columns[i]).help]
    return {**made, "notes": [*table.notes, *(["; ".join(helped)] if helped else [])]}


def _listed(
    caption: str,
    columns: Iterable[str],
    rows: Sequence[Sequence[str]],
    *,
    quiet: bool = False,
    dense: bool = False,
    numeric: Iterable[int] = (),
) -> dict[str, Any]:
    right = set(numeric)
    return {
        "caption": caption,
        "quiet": quiet,
        "dense": dense,
        "long": len(rows) > LONG and not dense,
        "columns": [
            {"name": name, "help": "", "kind": "n" if k in right else "s"}
            for k, name in enumerate(columns)
        ],
        "rows": [
            [
                {
                    "text": cell,
                    "kind": "n" if k in right else "w" if len(cell) > WORDY else "s",
                    "verdict": VERDICTS.get(cell, ""),
                }
                for k, cell in enumerate(row)
            ]
            for row in rows
        ],
        "notes": [],
    }


# Figures


def _can_switch(figure: Figure) -> bool:
    """Whether the axis below may be straight or logarithmic: positive numbers over a decade."""
    if figure.square or is_empty(figure):
        return False
    x = np.concatenate([np.asarray(s.x, dtype=np.float64) for s in figure.series])
    x = x[np.isfinite(x)]
    positive = x[x > 0]
    return bool(len(positive) and x.min() >= 0 and positive.max() >= 10 * positive.min())


def _figure(figure: Figure, detail: Detail) -> dict[str, Any]:
    """The figure as the template takes it; without anything to draw it says so."""
    drawn = figure.series[: detail.series]
    names = _unique(series.name for series in drawn)
    made = {
        "title": figure.title,
        "caption": figure.caption,
        "shape": "square" if figure.square else "tall",
        "log": figure.x.log and _can_switch(figure),
        "label": f"{figure.title}: {figure.y.label} over {figure.x.label}; {', '.join(names)}",
        "tables": _data_tables(figure, drawn, names, detail),
        "legend": [],
        "part": "",
        "view": None,
    }
    if is_empty(figure):
        caption = f"{figure.caption} Not drawn: there is nothing to see.".strip()
        return {**made, "caption": caption, "shape": ""}
    across, upward = limits(figure)
    straight = limits(replace(figure, x=Axis(figure.x.label)))[0]
    switch = _can_switch(figure)
    log = limits(replace(figure, x=Axis(figure.x.label, log=True)))[0] if switch else None
    ends = straight if switch else across
    series: list[dict[str, Any]] = []
    keys: list[dict[str, Any]] = []
    counts = [0, 0]
    lines = [
        name
        for s, name in zip(drawn, names, strict=True)
        if isinstance(s, Line) and s.shown and not s.dashed
    ]
    places = colour_places([series.name for series in drawn])
    for one, name, place in zip(drawn, names, places, strict=True):
        hue = f"$c{place % COLOURS + 1}"
        made_series, sign, kept, count = _drawn(figure, one, name, hue, lines, detail)
        series += made_series
        counts[0] += kept
        counts[1] += count
        keys.append({"name": name, "colour": hue[1:], "sign": sign, "on": one.shown})
    hues = {key["name"]: f"${key['colour']}" for key in keys}
    called = dict(zip((s.name for s in drawn), names, strict=True))
    for mark in figure.marks:
        series += _marked(mark, called, hues, keys, ends, upward)
    idents = {name: f"s{k}" for k, name in enumerate(dict.fromkeys(s["name"] for s in series))}
    for key in keys:
        key["key"] = idents.get(key["name"], "")
    keys = [key for key in keys if key["key"]]
    # ECharts keeps what is switched on in an object that has things called `constructor` of its
    # own, so series are called s0, s1 …; the names are only shown.
    option = {
        "animation": False,
        # The box stays where it is, whatever the labels are: a zoom must not move it.
        "grid": {"left": 62, "right": 18, "top": 14, "bottom": 46, "outerBoundsMode": "none"},
        "tooltip": _tooltip(by_point=any(isinstance(s, Points) for s in drawn)),
        "toolbox": _zoom_tool(),
        "xAxis": _axis(figure.x.label, ends, log=figure.x.log and not switch, gap=28),
        "yAxis": _axis(figure.y.label, upward, log=figure.y.log, gap=44),
        "series": [{**one, "name": idents[one["name"]]} for one in series],
    }
    view = {
        "option": option,
        "names": list(idents),
        "tip": [clean(axis.label, limit=60) for axis in (figure.x, figure.y)],
        "log": log,
        "grid": figure.square,
        "off": [key["key"] for key in keys if not key["on"]],
    }
    parts = []
    if counts[0] < counts[1]:
        parts.append(f"{counts[0]:,} of {counts[1]:,} points drawn")
    if len(drawn) < len(figure.series):
        parts.append(f"{len(drawn)} of {len(figure.series)} curves drawn")
    return {**made, "legend": keys, "part": ", ".join(parts), "view": _data(view)}


def _data(data: object) -> Markup:
    """Data for the script of the page, which no name in it can end or comment out."""
    plain = json.dumps(data, allow_nan=False, separators=(",", ":"))
    for sign in "<>&":
        plain = plain.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(plain)


def _unique(names: Iterable[str]) -> list[str]:
    """Names as a plot shows them, each once: a series is switched by its name."""
    found: dict[str, None] = {}
    for name in names:
        short = shown = clean(name, limit=LONGEST_NAME) or "(no name)"
        number = 1
        while shown in found:  # a name may look like another one with its number
            number += 1
            shown = f"{short} ({number})"
        found[shown] = None
    return list(found)


def _drawn(
    figure: Figure,
    series: Line | Points | Band,
    name: str,
    hue: str,
    lines: list[str],
    detail: Detail,
) -> tuple[list[dict[str, Any]], str, int, int]:
    """A series for ECharts, its sign in the legend, points that are drawn, and all points."""
    if isinstance(series, Points):
        return _scatter(figure, series, name, hue, detail)
    if isinstance(series, Band):
        (x, low), (_, high) = drawable(figure, series)
        known = np.isfinite(low) & np.isfinite(high)
        kept = outline((high - low)[known], detail.points)
        upper = _pairs(x[known][kept], high[known][kept])
        lower = _pairs(x[known][kept], low[known][kept])
        # Forward along the upper edge and back along the lower one: what the fill adds below the
        # band on the way there it takes off on the way back.
        style = {"width": 0.5, "opacity": 0.5}
        area = _line(name, [*upper, *lower[::-1]], hue, lineStyle=style, id=f"aux band {name}")
        area |= {"areaStyle": {"color": hue, "opacity": 0.18}, "silent": True, "z": 1}
        return [area], "wide", len(kept), int(known.sum())
    x, y = drawable(figure, series)[0]
    marks = [m.x for m in figure.marks if m.x is not None and m.series == series.name]
    places = [int(place) for at in marks for place in np.flatnonzero(x == at)[:1]]
    kept = outline(y, detail.points, kept=places)
    points = _pairs(x[kept], y[kept])
    style, sign = _stroke(lines.index(name), len(lines)) if name in lines else _stroke(0, 1)
    if series.dashed:
        style, sign = {"width": 1.75, "type": "dashed"}, "dash"
    seen = {"showSymbol": True, "symbolSize": 4} if len(points) <= FEW else {}
    made = [_line(name, points, hue, lineStyle=style, **seen)]
    levels = [None, *(height for _, height in points), None]
    alone = [
        point
        for k, point in enumerate(points)
        if levels[k] is None and point[1] is not None and levels[k + 2] is None
    ]
    if alone:  # no line goes through a single point
        dots = {"type": "scatter", "name": name, "id": f"aux alone {name}", "silent": True}
        made.append({**dots, "symbolSize": 7, "itemStyle": {"color": hue}, "data": alone})
    return made, sign, len(kept), len(y)


def _scatter(
    figure: Figure, series: Points, name: str, hue: str, detail: Detail
) -> tuple[list[dict[str, Any]], str, int, int]:
    x, y = (np.asarray(values, dtype=np.float64) for values in (series.x, series.y))
    drawn = np.flatnonzero(
        np.isfinite(x)
        & np.isfinite(y)
        & ((x > 0) | (not figure.x.log))
        & ((y > 0) | (not figure.y.log))
    )
    (reach, _), (low, high) = limits(figure)
    if figure.square:
        drawn = drawn[np.maximum(np.abs(x[drawn]), np.abs(y[drawn])) <= abs(reach)]
        # The largest are the ones that matter: they last longest.
        most = max(detail.dots // max(len(figure.series), 1), 10)
        far = np.argsort(-np.hypot(x[drawn], y[drawn]), kind="stable")[:most]
        kept = drawn[np.sort(far)]
    else:
        drawn = drawn[(y[drawn] >= low) & (y[drawn] <= high)]
        kept = drawn[outline(y[drawn], detail.points)]
    labels, points = series.labels, []
    for k in kept.tolist():
        point = [_digits(float(x[k])), _digits(float(y[k]))]
        text = clean(labels[k], limit=40) if k < len(labels) else ""
        points.append({"value": point, "name": text, "tip": f"{name}: {text}"} if text else point)
    made: dict[str, Any] = {"type": "scatter", "name": name, "id": f"points {name}", "data": points}
    made |= {"symbolSize": 8 if len(points) <= 200 else 5, "color": hue, "z": 3}
    made["itemStyle"] = {"color": hue, "opacity": 0.75}
    if 0 < len(labels) <= LABELLED:
        label = {"show": True, "formatter": "name", "color": "$ink", "fontSize": 11, "distance": 7}
        label |= {"position": "right", "textBorderColor": "$paper", "textBorderWidth": 3}
        style = {"color": hue, "borderColor": "$paper", "borderWidth": 1.5}
        made |= {"symbol": "diamond", "symbolSize": 12, "itemStyle": style, "label": label, "z": 6}
        return [made], "diamond", len(kept), len(x)
    return [made], "spot", len(kept), len(x)


def _marked(
    mark: Mark,
    called: dict[str, str],
    hues: dict[str, str],
    keys: list[dict[str, Any]],
    across: tuple[float, float],
    upward: tuple[float, float],
) -> list[dict[str, Any]]:
    """A mark for ECharts, switched with its series or by a key of its own, which is added."""
    name = called.get(mark.series) or clean(mark.label, limit=LONGEST_NAME)
    ident = f"aux {name} {mark.x} {mark.y} {mark.span} {mark.radius}"
    if mark.span is not None:
        hue, sign = "$window", "area"
        area = {"silent": True, "itemStyle": {"color": hue}}
        area["data"] = [[{"xAxis": end} for end in np.clip(mark.span, *across).tolist()]]
        made = {"type": "line", "name": name, "id": ident, "data": [], "markArea": area}
    else:
        if mark.radius is not None:
            first = all(key["sign"] != "ring" for key in keys)
            hue, kind, sign = ("$ink", "solid", "ring") if first else ("$accent", "dashed", "dash")
            points = [[_digits(x), _digits(y)] for x, y in circle(mark.radius)]
        elif mark.x is not None:
            if not across[0] <= mark.x <= across[1]:
                return []
            hue, kind, sign = "$horizon", "dashed", "dash"
            points = [[_digits(mark.x), end] for end in upward]
        else:
            if mark.y is None or not upward[0] <= mark.y <= upward[1]:
                return []
            hue, kind, sign = "$soft", "dotted", "dots"
            points = [[end, _digits(mark.y)] for end in across]
        hue = hues.get(name, hue)
        style = {"width": 1.5, "type": kind}
        made = _line(name, points, hue, lineStyle=style, id=ident, silent=True, z=1)
    if name not in hues and all(key["name"] != name for key in keys):
        keys.append({"name": name, "colour": hue[1:], "sign": sign, "on": True})
    return [made]


def _line(name: str, points: list[Any], hue: str, **more: Any) -> dict[str, Any]:
    style = {"color": hue, "width": 2, **more.pop("lineStyle", {})}
    made = {"type": "line", "name": name, "data": points, "showSymbol": False, "symbol": "circle"}
    return {**made, "color": hue, "lineStyle": style, "emphasis": {"disabled": True}, **more}


def _stroke(place: int, count: int) -> tuple[dict[str, Any], str]:
    """Width of a line among several, narrower than those that it lies on, and its sign."""
    if count == 1 or count > OVERLAID:
        return {"width": 2.0, "join": "round"}, "line"
    above = count - 1 - place
    width = round(1.75 + above * min(2.5, 6.25 / (count - 1)), 2)
    style: dict[str, Any] = {"width": width, "join": "round"}
    if place == 0:
        style["opacity"] = 0.5  # a broad line is no more important than the others
    return style, "broad" if place == 0 else "wide" if above else "line"


def _axis(name: str, ends: tuple[float, float], *, log: bool, gap: int) -> dict[str, Any]:
    low, high = ends
    label = {"formatter": "power" if log else "short", "hideOverlap": True}
    made = {
        "name": clean(name, limit=60),
        "nameLocation": "middle",
        "nameGap": gap,
        "axisLabel": label,
    }
    if not log:
        return {**made, "type": "value", "min": low, "max": high}
    spread_ = math.log10(high) - math.log10(low)
    step = max(1, math.ceil(round(spread_, 9) / TICKS))
    if abs(math.log10(high) % 1) < 1e-9:
        # Ticks are counted from the lower end: with whole steps the upper end is one, too.
        low = 10.0 ** max(
            round(math.log10(high)) - step * math.ceil(round(spread_, 9) / step), -300
        )
    return {**made, "type": "log", "min": low, "max": high, "interval": step}


def _tooltip(*, by_point: bool) -> dict[str, Any]:
    if by_point:
        return {"trigger": "item"}
    pointer = {"type": "line", "lineStyle": {"color": "$soft"}, "label": {"show": False}}
    return {"trigger": "axis", "axisPointer": pointer}


def _zoom_tool() -> dict[str, Any]:
    """The tool that zooms into a rectangle; it is always in hand, so it has no button."""
    tool = {"filterMode": "none", "icon": {"zoom": "path://", "back": "path://"}}
    tool["brushStyle"] = {"color": "$brush", "borderWidth": 0}
    return {"itemSize": 0, "showTitle": False, "feature": {"dataZoom": tool}}


def _pairs(x: np.ndarray, y: np.ndarray) -> list[list[float | None]]:
    """Points in five digits; what has no place on an axis is a gap."""
    return [
        [_digits(a), _digits(b) if math.isfinite(b) else None]
        for a, b in zip(x.tolist(), y.tolist(), strict=True)
    ]


def _digits(value: float) -> float:
    """A number as short as a plot needs it."""
    short = float(f"{value:.5g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def _data_tables(
    figure: Figure, drawn: Sequence[Line | Points | Band], names: list[str], detail: Detail
) -> list[dict[str, Any]]:
    """The numbers behind a figure: x below each other and curves beside each other, and points."""
    columns: dict[str, dict[float, float]] = {}
    dots: list[tuple[str, str, str, str]] = []
    for series, name in zip(drawn, names, strict=True):
        x = np.asarray(series.x, dtype=np.float64).tolist()
        if isinstance(series, Points):
            kept = spread(len(x), detail.rows)
            for k in kept.tolist():
                label = series.labels[k] if k < len(series.labels) else ""
                dots.append((name, _number(x[k]), _number(float(series.y[k])), clean(label)))
        elif isinstance(series, Band):
            columns[f"{name}, low"] = dict(zip(x, np.asarray(series.low).tolist(), strict=False))
            columns[f"{name}, high"] = dict(zip(x, np.asarray(series.high).tolist(), strict=False))
        else:
            columns[name] = dict(zip(x, np.asarray(series.y).tolist(), strict=False))
    made = []
    if columns:
        everywhere = sorted({x for column in columns.values() for x in column})
        marked = {m.x for m in figure.marks if m.x is not None}
        places = spread(len(everywhere), detail.rows).tolist()
        places = sorted({*places, *(k for k, x in enumerate(everywhere) if x in marked)})
        rows = [
            (
                _number(everywhere[k]),
                *(_number(column.get(everywhere[k])) for column in columns.values()),
            )
            for k in places
        ]
        heads = (figure.x.label or "x", *columns)
        caption = _partly(figure.title, len(rows), len(everywhere))
        numbers = range(len(heads))
        made.append(_listed(caption, heads, rows, dense=True, numeric=numbers))
    if dots:
        count = sum(len(s.x) for s in drawn if isinstance(s, Points))
        caption = _partly(figure.title, min(len(dots), detail.rows), count)
        heads = ("series", figure.x.label or "x", figure.y.label or "y", "label")
        wide = 4 if any(row[3] for row in dots) else 3
        shown = [row[:wide] for row in dots[: detail.rows]]
        made.append(_listed(caption, heads[:wide], shown, dense=True, numeric=(1, 2)))
    marks = [(mark.label, mark.series, _mark_value(mark)) for mark in figure.marks[: detail.items]]
    if marks:
        heads = ("mark", "curve", "at")
        made.append(_listed(f"{figure.title}: marks", heads, marks, dense=True))
    return made


def _partly(caption: str, shown: int, count: int) -> str:
    if shown >= count:
        return caption
    return f"{caption}; {shown} of {count} rows, the JSON report has more"


def _number(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "-"
    return f"{value:.6g}".replace("inf", "infinite")


def _mark_value(mark: Mark) -> str:
    if mark.span is not None:
        return f"{mark.span[0]:.6g} to {mark.span[1]:.6g}"
    return _number(next(v for v in (mark.x, mark.y, mark.radius) if v is not None))


def _sparkline(figure: Figure) -> str:
    """The first line of a figure as the path of a small drawing, "" without one."""
    if figure.square or is_empty(figure):
        return ""
    across, upward = limits(figure)
    for series in figure.series:
        if not isinstance(series, Line) or not series.shown:
            continue
        x, y = drawable(figure, series)[0]
        known = np.isfinite(y) & (y >= upward[0] * (1 - 1e-9) if figure.y.log else np.isfinite(y))
        if known.sum() < 2:
            continue
        x, y = x[known], y[known]
        kept = outline(y, 80)
        places = [
            f"{1 + 158 * share(a, across, log=figure.x.log):.1f} "
            f"{1 + 34 * (1 - share(b, upward, log=figure.y.log)):.1f}"
            for a, b in zip(x[kept].tolist(), y[kept].tolist(), strict=True)
        ]
        return "M" + "L".join(places)
    return ""


# Notebooks

#: A notebook has its own style; grey lines and inherited colours suit light and dark.
CELL = "text-align:left;padding:2px 14px 2px 0;border-bottom:1px solid rgba(128,128,128,.3)"
ROWS = 12


def notebook_html(report: Report) -> str:
    """A report in a notebook: headlines, the first table, a line a section, the findings."""
    document = report.document()
    parts = [_element("div", f"<b>{w}</b>") for w in map(_escaped, document.warnings)]
    about = _escaped(document.facts[0][1]) if document.facts else ""
    parts.append(_element("div", f"<b>{_escaped(document.title)}</b> {about}"))
    parts += [_element("div", _escaped(line)) for line in document.headlines]
    shown = [section for section in document.sections if not section.detail]
    first = next((s for s in shown if s.headline and s.tables), None)
    if first is not None:
        table, used = first.tables[0], used_columns(first.tables[0])
        texts = table.texts()[:ROWS]
        lines = [("th", [table.columns[i].name for i in used])]
        lines += [("td", [row[i] for i in used]) for row in texts]
        rows = [
            _element("tr", "".join(_element(tag, _escaped(cell), CELL) for cell in cells))
            for tag, cells in lines
        ]
        parts.append(_element("table", "".join(rows)))
    for section in shown:
        if section.line and section is not first:
            parts.append(_element("div", f"{_escaped(section.title)}: {_escaped(section.line)}"))
    codes = dict.fromkeys(f"{clean(f.code)} {clean(f.name)}" for f in report.findings)
    named = ", ".join(list(codes)[:ROWS]) or "none"
    more = f" and {len(codes) - ROWS} more" if len(codes) > ROWS else ""
    parts.append(_element("div", _escaped(f"Findings: {named}{more}"), "opacity:.75;font-size:90%"))
    return f"<div>{''.join(parts)}</div>"


def _escaped(text: object) -> str:
    return str(Markup.escape(clean(text, limit=LONGEST)))


def _element(tag: str, content: str, style: str = "") -> str:
    styled = f' style="{style}"' if style else ""
    return f"<{tag}{styled}>{content}</{tag}>\n"
