"""E(beta) by group of weights, and how far each of them may move."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Group
from rich.text import Text

from memaudit.errors import clean
from memaudit.reports.error_plot import ErrorPlot, error_plot, mark
from memaudit.reports.tables import table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from memaudit.stability.result import PerturbationCurve, Radius, Stability

#: E(beta) is told at so many betas, from the smallest to the largest.
TOLD = 3
PICTURE = 72
#: What ends at a radius, in a word.
UNTIL = {
    "no mode reaches the boundary": "boundary",
    "the error stays below the size of the answers": "error",
}


def stability_block(item: Stability, *, width: int, ascii_only: bool) -> RenderableType:
    """Table, picture and what they mean."""
    title = Text("Stability", style="bold underline")
    made = stability_table(item, ascii_only=ascii_only)
    curves = [curve for curve in item.curves if curve.ball == item.ball]
    drawn = ErrorPlot(item.betas, [curve.errors for curve in curves], item.scale)
    picture = error_plot(drawn, width=max(min(width, PICTURE), 40), ascii_only=ascii_only)
    names = ", ".join(f"{mark(k)} {clean(curve.group)}" for k, curve in enumerate(curves))
    told = f"E(beta), {clean(item.ball)} ball: {names}; dotted: the answers"
    plot = Text("\n".join(picture), no_wrap=True, overflow="crop")
    return Group(title, made, Text(""), Text(told), plot, *stability_lines(item))


def stability_table(item: Stability, *, ascii_only: bool) -> Table:
    """One row per group of weights, ball and part: radii, and E(beta) as a share of the answers."""
    parts = [item, *item.others]
    layered = any(part.where for part in parts)
    several = len({curve.ball for part in parts for curve in part.curves}) > 1
    betas = _told(item.betas, TOLD - layered - several)
    columns = ["layer"] * layered + ["weights"] + ["ball"] * several
    columns += [
        "radius",
        "until",
        "exact",
        "tolerance",
        *(f"E({item.betas[k]:.3g})" for k in betas),
    ]
    made = table(*columns, ascii_only=ascii_only)
    for part in parts:
        for curve in part.curves:
            place = (
                [clean(part.where)] * layered + [clean(curve.group)] + [clean(curve.ball)] * several
            )
            made.add_row(*map(Text, [*place, *_numbers(part, curve, betas)]))
    return made


def stability_lines(item: Stability) -> list[Text]:
    """What the columns mean: the criteria, the norm, and what the error is held against."""
    first = item.first
    told = [
        "Radius: the largest move until which no mode reaches the boundary, or, where the weights "
        f"alone do not decide the modes, the error stays below the answers; {item.seeds} seeds.",
        f"Tolerance: {clean(first.tolerance_radius.criterion)}.",
        f"E within the {clean(first.ball)} ball, in the {clean(first.norm)} norm, as a share of "
        f"the answers, against {clean(item.reference)} of {item.horizon} steps; {item.draws} draws"
        + (" and gradient ascent." if len(first.ascent) else "."),
    ]
    if item.note:
        told.append(clean(item.note))
    return [Text("\n".join(told))]


def _told(betas: np.ndarray, count: int) -> list[int]:
    """The places of the betas that are told, evenly spread; the largest is one of them."""
    places = np.linspace(0, len(betas) - 1, max(count, 1) + 1)[1:]
    return sorted({round(place) for place in places})


def _numbers(part: Stability, curve: PerturbationCurve, betas: list[int]) -> list[str]:
    until = UNTIL.get(curve.radius.criterion, clean(curve.radius.criterion))
    radii = [radius(curve.radius), until, _exact(curve.radius), radius(curve.tolerance_radius)]
    return radii + [_share(curve.errors[k], part.scale) for k in betas if k < len(curve.errors)]


def radius(item: Radius) -> str:
    """A radius, with its interval where the seeds do not agree."""
    low, high = item.interval
    told = _size(item.value)
    spread = math.isfinite(low) and high > 1.02 * low
    return f"{told} [{_size(low)}, {_size(high)}]" if spread else told


def _exact(item: Radius) -> str:
    return "-" if item.closed_form is None else _size(item.closed_form)


def _size(value: float) -> str:
    return "infinite" if math.isinf(value) else f"{value:.3g}"


def _share(error: float, scale: float) -> str:
    if math.isinf(error) or not scale > 0:
        return "infinite" if math.isinf(error) else f"{error:.2g}"
    return f"{error / scale:.2%}" if error < scale else f"{error / scale:.3g}x"
