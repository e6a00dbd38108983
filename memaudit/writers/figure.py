"""A document as a matplotlib figure: a panel for the first figure of every section."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure as MatplotlibFigure
from matplotlib.patches import Circle

from memaudit.errors import ArgumentError, clean, nearest
from memaudit.sections import Band, Line
from memaudit.writers.scales import colour_places, drawable, is_empty, limits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from memaudit.sections import Document, Figure, Mark

#: Width and height of one panel in inches.
PANEL = (6.6, 4.6)
#: More series than these are named in no legend, but for the first and the last.
NAMED = 10
#: A logarithmic axis has margins and ticks beyond its ends, which must be numbers, too.
LEAST, MOST = 1e-150, 1e150
#: A name is text: neither a program for TeX nor a formula.
PLAIN: dict[Any, bool] = {"text.usetex": False, "axes.unicode_minus": True}


class ReportFigure(MatplotlibFigure):
    """A figure that no window and no state of pyplot knows; a notebook shows it as it is."""

    def _repr_png_(self) -> bytes:
        file = BytesIO()
        self.savefig(file, format="png", dpi=96)
        return file.getvalue()


def figure(document: Document, *, series: Sequence[str] | None = None) -> MatplotlibFigure:
    """Panels two side by side; with `series` only the figures that have these, and only these."""
    panels = [section.figures[0] for section in document.sections if section.figures]
    names = [series] if isinstance(series, str) else list(series or ())
    known = dict.fromkeys(one.name for panel in panels for one in panel.series)
    for name in names:
        if name not in known:
            fact = f"the report has no query {clean(name)!r}"
            raise ArgumentError(fact, hint=nearest(str(name), known))
    chosen = [p for p in panels if not names or any(s.name in names for s in p.series)]
    columns = min(max(len(chosen), 1), 2)
    rows = max(-(-len(chosen) // columns), 1)
    with mpl.rc_context(PLAIN):
        made = ReportFigure(figsize=(PANEL[0] * columns, PANEL[1] * rows), layout="constrained")
        for place, panel in enumerate(chosen, start=1):
            _draw(made.add_subplot(rows, columns, place), panel, names)
        if not chosen:
            made.text(0.5, 0.5, "nothing to draw", ha="center")
        partial = " (partial report)" if document.warnings else ""
        made.suptitle(f"{_label(document.title, limit=60)}{partial}")
    return made


def _draw(axes: Axes, panel: Figure, names: list[str]) -> None:
    axes.set_title(_label(panel.title, limit=60))
    axes.set_xlabel(_label(panel.x.label))
    axes.set_ylabel(_label(panel.y.label))
    if is_empty(panel):
        axes.text(0.5, 0.5, "nothing to draw", ha="center", transform=axes.transAxes)
        return
    # First: on a straight axis the largest numbers have no room.
    axes.set_xscale("log" if panel.x.log else "linear")
    axes.set_yscale("log" if panel.y.log else "linear")
    shown = [s for s in panel.series if (s.name in names if names else s.shown)]
    lines = [s for s in shown if isinstance(s, Line) and not s.dashed]
    every = [s.name for s in shown]
    places = zip(every, colour_places(every), strict=True)
    colours = {name: f"C{place % 10}" for name, place in places}
    for place, series in enumerate(shown):
        named = len(shown) <= NAMED or place in (0, len(shown) - 1)
        style: dict[str, Any] = {"color": colours[series.name]}
        style["label"] = _label(series.name) if named else "_"
        pairs = [
            (_within(x, panel.x.log), _within(y, panel.y.log)) for x, y in drawable(panel, series)
        ]
        if isinstance(series, Band):
            (x, low), (_, high) = pairs
            axes.fill_between(x, low, high, alpha=0.2, lw=0, **style)
        elif isinstance(series, Line):
            # Curves on each other are seen when every one is narrower than those below it.
            above = 0 if series.dashed else len(lines) - 1 - lines.index(series)
            width = 1.5 + (above if len(lines) <= 6 else 0)
            kind = "--" if series.dashed else "-"
            axes.plot(
                *pairs[0], kind, lw=width, marker="." if len(pairs[0][0]) < 3 else "", **style
            )
        else:
            axes.scatter(*pairs[0], s=14, alpha=0.7, lw=0, **style)
            for x, y, text in zip(series.x, series.y, series.labels, strict=False):
                axes.annotate(
                    _label(text),
                    (x, y),
                    fontsize="small",
                    textcoords="offset points",
                    xytext=(4, 4),
                )
    across, upward = limits(replace(panel, series=tuple(shown)))
    for mark in panel.marks:
        if not names or not mark.series or mark.series in names:
            _mark(axes, mark, colours.get(mark.series), upward)
    low, high = _within(np.array(upward), panel.y.log)
    axes.set_ylim(low, max(high, 10 * low) if panel.y.log else high)
    if panel.square:
        axes.set_xlim(*across)
        axes.set_aspect("equal")
    if axes.get_legend_handles_labels()[1]:
        beside = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)} if panel.square else {}
        axes.legend(fontsize="small", frameon=False, **beside)


def _mark(axes: Axes, mark: Mark, colour: str | None, upward: tuple[float, float]) -> None:
    """Marks of a series have its colour and no entry in the legend."""
    style: dict[str, Any] = {"color": colour or "0.4", "lw": 1.0}
    style["label"] = "_" if colour else _label(mark.label)
    if mark.radius is not None:
        first = not axes.patches
        kind = "-" if first else "--"
        style["color"] = "black" if first else "0.4"
        axes.add_patch(Circle((0, 0), mark.radius, fill=False, ls=kind, **style))
    elif mark.x is not None:
        axes.axvline(mark.x, ls="--", **style)
    elif mark.span is not None:
        axes.axvspan(*mark.span, alpha=0.08, color=colour or "0.4", lw=0, label=style["label"])
    elif mark.y is not None and upward[0] <= mark.y <= upward[1]:
        axes.axhline(mark.y, ls=":", **style)


def _within(values: np.ndarray, log: bool) -> np.ndarray:
    """Numbers that a logarithmic axis of matplotlib can hold."""
    return np.clip(values, LEAST, MOST) if log else values


def _label(name: object, *, limit: int = 40) -> str:
    """A name without control characters and formulas; a legend hides what begins with `_`."""
    plain = clean(name, limit=limit).replace("$", r"\$")
    return f" {plain}" if plain.startswith("_") else plain
