"""python -m examples.reproduce [--list] [--all] [--quick] [ROW …]."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from examples.reproduce import catalog
from examples.reproduce.page import verdict_of, write_page
from examples.reproduce.row import Verdict
from examples.reproduce.running import run_row, run_rows

HERE = Path(__file__).parent


def main(arguments: Sequence[str] | None = None) -> int:
    """Run rows, print how each ends, and write the page; 1 when a row failed to run."""
    asked = _parser().parse_args(arguments)
    if asked.list:
        _list()
        return 0
    try:
        names = catalog.names() if asked.all else catalog.chosen(asked.rows)
    except ValueError as error:
        print(f"reproduce: {error}", file=sys.stderr)
        return 2
    if not names and not asked.page:
        print("reproduce: name rows, or give --all or --list", file=sys.stderr)
        return 2
    failed = _run(names, asked) if names else 0
    print(f"page: {write_page(asked.out)}")
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m examples.reproduce",
        description="Run the experiments of the papers again, and hold them against the claims.",
    )
    parser.add_argument("rows", nargs="*", metavar="ROW", help="rows, such as I-F10 or S-T4")
    parser.add_argument("--list", action="store_true", help="show all rows and their claims")
    parser.add_argument("--all", action="store_true", help="run every row")
    parser.add_argument("--quick", action="store_true", help="smaller settings, minutes for all")
    parser.add_argument("--page", action="store_true", help="write the page from saved results")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="rows at a time")
    parser.add_argument("--out", type=Path, default=HERE, help="where results and page go")
    return parser


def _list() -> None:
    for paper, group in catalog.ROWS.items():
        print(f"\n{paper}")
        for name in group:
            row = catalog.load(name)
            print(f"  {name:20} {row.title}\n  {'':20} {row.claim}")


def _run(names: Sequence[str], asked: argparse.Namespace) -> int:
    """Print a line or two for every row as it ends; how many failed."""
    began, failed = time.perf_counter(), 0
    given: dict[str, Any] = {"quick": asked.quick, "seed": asked.seed}
    found = (
        _alone(names[0], asked.out, given)
        if len(names) == 1
        else run_rows(names, asked.out, jobs=max(1, asked.jobs), **given)
    )
    for number, (name, record) in enumerate(found, start=1):
        spent = time.perf_counter() - began
        print(f"[{number}/{len(names)}, {spent:.0f} s] {name}: {_told(record)}", flush=True)
        failed += isinstance(record, Exception)
    return failed


def _alone(name: str, out: Path, given: dict[str, Any]) -> list[tuple[str, Any]]:
    """One row by itself, with a bar on a terminal; what goes wrong is shown whole."""
    from memaudit.reports.progress import progress_bar

    with progress_bar(wanted=True) as advance:
        return [(name, run_row(name, out, tick=lambda n, of: advance(name, n, of), **given))]


def _told(record: Any) -> str:
    if isinstance(record, Exception):
        return f"FAILED TO RUN: {record}"
    words = [f"{record['claim']}\n    {verdict_of(record)}: {record['reason']}"]
    if record["verdict"] == Verdict.SCALED:
        words.append(f"    scaled down: {record['scaled']}")
    if record.get("errata"):
        words.append(f"    errata: {record['errata']}")
    return "\n".join(words)


if __name__ == "__main__":
    sys.exit(main())
