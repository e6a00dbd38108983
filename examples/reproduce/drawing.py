"""Figures of one style, drawn without a display."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

#: Colours that stay apart in print and for colour-blind readers (Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#888888")
#: Inches of one panel, and dots in an inch.
WIDTH, HEIGHT, DOTS = 4.6, 3.3, 100


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
    """Draw named curves with their legend; `logs` names the axes that are logarithmic ("xy")."""
    for name, (at, values) in curves.items():
        axes.plot(at, values, label=name, linewidth=1.4, **style)
    if "x" in logs:
        axes.set_xscale("log")
    if "y" in logs:
        axes.set_yscale("log")
    axes.set_xlabel(x, fontsize=9)
    axes.set_ylabel(y, fontsize=9)
    axes.tick_params(labelsize=8)
    if len(curves) > 1 or any(curves):
        axes.legend(fontsize=7)


def save(figure: Figure, path: Path) -> None:
    """Write a PNG that is the same for the same figure."""
    figure.savefig(path, dpi=DOTS, metadata={"Software": None})
