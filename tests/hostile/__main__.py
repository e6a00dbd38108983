"""`python -m tests.hostile`: the table of all cases; exits with 1 when one of them is not green."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from tests.hostile import runner
from tests.hostile.cases import every_case

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.hostile.runner import Row


def main() -> int:
    arguments = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    arguments.add_argument("words", nargs="*", help="only cases whose title has one of these words")
    arguments.add_argument("--json", help="write the rows to this file, too")
    arguments.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="cases at a time")
    asked = arguments.parse_args()
    cases = [c for c in every_case() if not asked.words or any(w in c.title for w in asked.words)]
    runner.warm_up()
    began = time.monotonic()
    rows = [_told(row) for row in runner.run_all(cases, jobs=asked.jobs)]
    if asked.json:
        with open(asked.json, "w", encoding="utf-8") as stream:
            json.dump({row.case.title: list(row.faults) for row in rows}, stream)
    _show(rows, seconds=time.monotonic() - began)
    return int(any(row.faults for row in rows))


def _told(row: Row) -> Row:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{row.case.title}", end="", file=sys.stderr, flush=True)
    return row


def _show(rows: Sequence[Row], *, seconds: float) -> None:
    console = Console(width=max(120, Console().width), highlight=False)
    table = Table(box=None, pad_edge=False)
    for name in ("case", "exit", "code"):
        table.add_column(name, no_wrap=name != "case")
    for name in ("seconds", "peak MB"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for row in rows:
        green = "[green]ok[/]" if not row.faults else "[red]FAILED[/]"
        numbers = (f"{row.seconds:.2f}", f"{row.megabytes:.0f}")
        table.add_row(row.case.title, str(row.status), row.code or "-", *numbers, green)
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    console.print(table)
    for row in rows:
        if row.faults:
            console.print(f"\n{row.case.title}\n  " + "\n  ".join(row.faults), markup=False)
    bad = sum(1 for row in rows if row.faults)
    console.print(f"\n{len(rows)} cases, {bad} not green, {seconds:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
