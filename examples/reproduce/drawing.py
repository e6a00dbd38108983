"""Figures of one style, drawn without a display."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

#: Colours that stay apart in print and for colour-blind readers (Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#888888")
#: Inches of one panel, and dots in an inch.
WIDTH, HEIGHT, DOTS = 4.6, 3.3, 100
#: What is drawn: margins and ticks lie beyond both ends of the data, those of logarithmic axes by
#: decades, and overflow where that leaves the range of float64. Unstable models reach 1e300.
LEAST, MOST = 1e-30, 1e30


def panels(*titles: str) -> tuple[Figure, list[Axes]]:
    """A figure with one panel for every title, side by side, at most three in a line."""
    columns = min(3, len(titles))
    lines = -(-len(titles) // columns)
    figure = Figure(figsize=(WIDTH * columns, HEIGHT * lines), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False).ravel().tolist()
    for axes in grid[len(titles) :]:
        axes.remove()
    shown: list[Axes] = grid[: len(titles)]
    for axes, title in zip(shown, titles, strict=True):
        axes.set_title(title, fontsize=10)
        axes.grid(visible=True, alpha=0.25)
        axes.set_prop_cycle(color=COLOURS)
    return figure, shown


def lines(
    axes: Axes,
    curves: dict[str, tuple[Sequence[float], Sequence[float]]],
    *,
    x: str,
    y: str,
    logs: str = "",
    **style: Any,
) -> None:
    """Draw named curves with their legend; `logs` names the axes that are logarithmic ("xy").

    What cannot be shown is left out or moved to the end of what can, see `drawable`.
    """
    for name, (at, values) in curves.items():
        kept = drawable(at, values, logs)
        axes.plot(*kept, label=name, linewidth=1.4, **style)
    # A logarithmic axis on which nothing is shown cannot be saved.
    shown = bool(axes.lines) and np.isfinite(axes.dataLim.minpos).all()
    axes.set(xscale="log" if shown and "x" in logs else axes.get_xscale())
    axes.set(yscale="log" if shown and "y" in logs else axes.get_yscale())
    axes.set_xlabel(x, fontsize=9)
    axes.set_ylabel(y, fontsize=9)
    axes.tick_params(labelsize=8)
    if len(curves) > 1 or any(curves):
        axes.legend(fontsize=7)


def drawable(
    at: Sequence[float], values: Sequence[float], logs: str = ""
) -> tuple[np.ndarray, np.ndarray]:
    """A curve with gaps where it is not finite, or not positive on a logarithmic axis.

    Everything else is moved between LEAST and MOST; a curve of nothing but gaps is empty.
    """
    both = {"x": np.array(at, dtype=float), "y": np.array(values, dtype=float)}
    for name, numbers in both.items():
        numbers[~np.isfinite(numbers)] = np.nan
        if name in logs:
            numbers[numbers <= 0.0] = np.nan
        np.clip(numbers, LEAST if name in logs else -MOST, MOST, out=numbers)
    seen = ~(np.isnan(both["x"]) | np.isnan(both["y"]))
    return (both["x"], both["y"]) if seen.any() else (np.empty(0), np.empty(0))


def save(figure: Figure, path: Path) -> None:
    """Write a PNG that is the same for the same figure."""
    figure.savefig(path, dpi=DOTS, metadata={"Software": None})
