"""python -m benchmarks [--full] [GROUP …] [--json FILE] [--picture FILE]."""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.row import Row
from memaudit import __version__

#: Modules with a function `rows`, in the order in which they run: the limits of the machine first.
GROUPS = ("machine", "start", "opening", "scans", "stability", "audits", "others")


def table(rows: Sequence[Row]) -> Table:
    """The rows, those over their limit marked."""
    drawn = Table("group", "what", "value", "wanted", "note")
    for column, justify in zip(
        drawn.columns, ("left", "left", "right", "right", "left"), strict=True
    ):
        column.justify = justify
    last = ""
    for row in rows:
        wanted = "" if row.limit is None else f"<= {row.limit:g}"
        over = row.limit is not None and row.value > row.limit
        value = f"{row.value:.3g} {row.unit}".strip()
        drawn.add_row(
            "" if row.group == last else row.group,
            row.name,
            f"[bold red]{value}[/]" if over else value,
            wanted,
            row.note,
        )
        last = row.group
    return drawn


def picture(rows: Sequence[Row], path: Path) -> None:
    """A bar for every ratio, on a logarithmic axis, with a mark where it should end."""
    from matplotlib.figure import Figure

    shown = [row for row in rows if row.unit == "x"][::-1]
    figure = Figure(figsize=(9, 0.32 * len(shown) + 1), layout="constrained")
    axes = figure.subplots()
    axes.barh(range(len(shown)), [row.value for row in shown], height=0.6)
    for at, row in enumerate(shown):
        if row.limit is not None:
            axes.plot([row.limit] * 2, [at - 0.4, at + 0.4], color="black")
        axes.annotate(f" {row.value:.3g}", (row.value, at), va="center", fontsize=8)
    axes.set_xscale("log")
    axes.set_yticks(range(len(shown)), [row.name for row in shown], fontsize=8)
    axes.set_xlabel("ratio of two times of one run; a black mark is the limit")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print one table, and write what was asked for."""
    own = {name: import_module(f"benchmarks.{name}").__doc__ or "" for name in GROUPS}
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="What audits cost: ratios and counts of one run, and the machine's limits.",
        epilog="\n".join(f"{name}: {told.splitlines()[0]}" for name, told in own.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("groups", nargs="*", metavar="GROUP", help="all, or some of those below")
    parser.add_argument("--full", action="store_true", help="real sizes: an hour, not minutes")
    parser.add_argument("--json", type=Path, help="write the rows, and the machine, to a file")
    parser.add_argument("--picture", type=Path, help="draw the ratios (extra: plot)")
    asked = parser.parse_args(argv)
    unknown = [name for name in asked.groups if name not in GROUPS]
    if unknown:
        parser.error(f"unknown group {unknown[0]!r}; there are {', '.join(GROUPS)}")
    console, found = Console(), list[Row]()
    for name in track(asked.groups or GROUPS, "measuring", console=Console(stderr=True)):
        for row in import_module(f"benchmarks.{name}").rows(full=asked.full):
            found.append(row)
    console.print(table(found))
    missed = sum(row.limit is not None and row.value > row.limit for row in found)
    limited = sum(row.limit is not None for row in found)
    console.print(f"{limited - missed} of {limited} limits are kept here, {missed} are not (red)")
    if asked.json:
        about = {
            "memaudit": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "processor": platform.machine(),
            "threads": torch.get_num_threads(),
            "full": asked.full,
        }
        rows = [asdict(row) for row in found]
        asked.json.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
    if asked.picture:
        picture(found, asked.picture)


if __name__ == "__main__":
    main()
