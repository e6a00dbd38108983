"""python -m examples.reproduce.data [NAME…]: what is cached; with names (or all), fetch them."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from functools import partial

from examples.reproduce.data.cache import intact, provide, root
from examples.reproduce.data.catalog import DATASETS, Dataset
from examples.reproduce.data.unavailable import DataUnavailable
from memaudit.errors import nearest


def main(words: Sequence[str] | None = None) -> int:
    """List the datasets, or fetch those that are named; 3 if one cannot be had."""
    known = {dataset.name: dataset for dataset in DATASETS}
    parser = argparse.ArgumentParser(prog="python -m examples.reproduce.data", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join([*known, "or all"]))
    names = parser.parse_args(words).names
    wanted = list(known) if "all" in names else list(dict.fromkeys(names))
    if unknown := [name for name in wanted if name not in known]:
        parser.error(f"no dataset is called {unknown[0]}; {nearest(unknown[0], known)}")
    code = 0
    for act in [partial(_fetch, known[name]) for name in wanted] or [_list]:
        try:
            act()
        except DataUnavailable as error:  # the others may still be had
            print(error, file=sys.stderr)
            code = error.exit_code
    return code


def _fetch(dataset: Dataset) -> None:
    start = time.perf_counter()
    provide(dataset)
    print(_row(dataset, f"ready in {time.perf_counter() - start:.1f} s"))


def _list() -> None:
    folder = root()
    print(f"cache: {folder}")
    for dataset in DATASETS:
        print(_row(dataset, "cached" if intact(dataset, folder / dataset.name) else "not cached"))


def _row(dataset: Dataset, state: str) -> str:
    package = dataset.package
    origin = f"{package.kind} {package.name} {package.version or ''}".strip()
    size = f"{dataset.size / 1e6:.1f} MB"
    return f"{dataset.name:<14}{size:>9}  {state:<15}  {origin:<32}  {dataset.licence}"


if __name__ == "__main__":
    sys.exit(main())
