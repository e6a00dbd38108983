"""python -m examples.reproduce [--list] [--all] [--quick] [ROW …]."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from examples.reproduce import catalog
from examples.reproduce.asking import (
    DISK,
    RefusedError,
    check_out,
    check_results,
    parser,
    unwritable,
)
from examples.reproduce.page import write_page
from examples.reproduce.running import run_row, run_rows
from examples.reproduce.telling import listed, told

if TYPE_CHECKING:
    from argparse import Namespace


def main(arguments: Sequence[str] | None = None) -> int:
    """Run rows, print how each ends, and write the page; 1 when a row failed to run."""
    asked = parser().parse_args(arguments)
    try:
        code = _done(asked)
        sys.stdout.flush()
        return code
    except RefusedError as error:
        print(f"reproduce: {error}", file=sys.stderr)
        return error.code
    except BrokenPipeError:
        # Whoever read has gone: what is still to be flushed at the end goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("reproduce: interrupted; results of finished rows are kept", file=sys.stderr)
        return 130


def _done(asked: Namespace) -> int:
    if asked.list:
        print(listed())
        return 0
    try:
        names = catalog.names() if asked.all else catalog.chosen(asked.rows)
    except ValueError as error:
        raise RefusedError(str(error)) from error
    if not names and not asked.page:
        raise RefusedError("name rows, or give --all, --list or --page")
    if not names:
        check_results(asked.out)
    check_out(asked.out)
    failed = _run(names, asked) if names else 0
    print(f"page: {_page(asked.out)}")
    return 1 if failed else 0


def _page(out: Path) -> Path:
    try:
        return write_page(out)
    except OSError as error:
        raise unwritable(error, out) from error
    except (KeyError, TypeError, ValueError) as error:
        fact = f"a result in {out} cannot be read: {type(error).__name__}: {error}"
        raise RefusedError(f"{fact}; run its row again") from error


def _run(names: Sequence[str], asked: Namespace) -> int:
    """Print a line or two for every row as it ends; how many failed."""
    began, failed = time.perf_counter(), 0
    given: dict[str, Any] = {"quick": asked.quick, "seed": asked.seed}
    found = (
        _alone(names[0], asked.out, given)
        if len(names) == 1
        else run_rows(names, asked.out, jobs=asked.jobs, **given)
    )
    for number, (name, record) in enumerate(found, start=1):
        place = f"[{number}/{len(names)}, {time.perf_counter() - began:.0f} s]"
        print(told(name, record, place=place), flush=True)
        failed += isinstance(record, Exception)
    return failed


def _alone(name: str, out: Path, given: dict[str, Any]) -> list[tuple[str, Any]]:
    """One row by itself, with a bar on a terminal; what goes wrong in it is shown whole."""
    from memaudit.writers.progress import progress_bar

    try:
        with progress_bar(wanted=True) as advance:
            return [(name, run_row(name, out, tick=lambda n, of: advance(name, n, of), **given))]
    except OSError as error:
        if error.errno not in DISK:
            raise
        raise unwritable(error, out) from error


if __name__ == "__main__":
    sys.exit(main())
