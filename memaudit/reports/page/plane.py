"""The complex plane with the unit circle, and what is told of a mode in it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from memaudit.reports.depth import steps
from memaudit.reports.page.axes import axis, digits, line, option

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Points of a circle.
ROUND = 181
#: Modes beyond are not drawn: axes so long have no place for a circle, or for numbers at all.
FARTHEST = 1e6


def plane(far: float, series: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A square plot around zero that reaches beyond the unit circle and a mode that `far` out."""
    reach = 1.2 if far <= 1.15 else math.ceil(far * 11) / 10
    across = axis("real part", gap=28, min=-reach, max=reach)
    upward = axis("imaginary part", gap=40, min=-reach, max=reach)
    for one in (across, upward):  # the ends of the axes are no round numbers
        one["axisLabel"] |= {"showMinLabel": False, "showMaxLabel": False}
    # Above a margin so small that both circles are one: the boundary is what must be seen.
    unit = circle("unit circle", 1.0, "$ink", "solid", z=2)
    made = option(across, upward, [unit, *series], item=True)
    # Equal margins on both sides keep the circle round in a square.
    made["grid"] = {"left": 58, "right": 16, "top": 16, "bottom": 58, "containLabel": False}
    return made


def circle(name: str, radius: float, hue: str, kind: str, *, z: int = 1) -> dict[str, Any]:
    """A circle around zero that tells no numbers of its own."""
    turns = np.linspace(0.0, 2.0 * math.pi, ROUND)
    points = [[digits(radius * math.cos(t)), digits(radius * math.sin(t))] for t in turns.tolist()]
    style = {"width": 1.5, "type": kind}
    return line(name, points, hue, lineStyle=style, id=f"aux {name}", silent=True, z=z)


def drawable(eigenvalues: object) -> np.ndarray:
    """The modes that have a place in the plane."""
    values = np.asarray(eigenvalues, dtype=np.complex128).ravel()
    return values[np.abs(values) <= FARTHEST]


def mode(value: complex) -> list[float | str]:
    """One mode as a point, and what is told of it."""
    return [digits(value.real), digits(value.imag), digits(size(value)), steps(scale(value))]


def size(value: complex) -> float:
    """|lambda|; `abs` raises where it is no number any more."""
    return math.hypot(value.real, value.imag)


def scale(value: complex) -> float:
    """Steps until a mode has fallen to 1/e; infinite on the boundary and beyond."""
    far = size(value)
    return math.inf if far >= 1.0 else 0.0 if far == 0.0 else -1.0 / math.log(far)
