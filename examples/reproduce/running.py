"""Running rows: one after the other, or several at a time in processes of their own."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from examples.reproduce import catalog
from examples.reproduce.row import Effort

Tick = Callable[[int, int], None]


def run_row(name: str, out: Path, *, quick: bool, seed: int, tick: Tick | None = None) -> Any:
    """Run one row, save what it found, and give back the record."""
    from examples.reproduce import records
    from examples.reproduce.data import DataUnavailable

    row = catalog.load(name)
    effort = Effort(quick, seed, tick or (lambda done, of: None))
    began = time.perf_counter()
    try:
        outcome = row.run(effort)
    except DataUnavailable as missing:
        told = f"{missing.reason}; {missing.hint}"
        return records.write_not_run(out, row, effort, told)
    return records.write(out, row, effort, outcome, time.perf_counter() - began)


def run_rows(
    names: Sequence[str], out: Path, *, quick: bool, seed: int, jobs: int
) -> Iterator[tuple[str, Any]]:
    """Every row with its record, or with the exception that ended it, as they are finished."""
    if jobs == 1 or len(names) == 1:
        for name in names:
            yield name, _caught(name, out, quick, seed)
        return
    # A fresh interpreter for every worker: forked ones would share the threads of torch.
    context = get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_one_thread) as pool:
        waiting = {pool.submit(_caught, name, out, quick, seed): name for name in names}
        for done in as_completed(waiting):
            yield waiting[done], done.result()


def _caught(name: str, out: Path, quick: bool, seed: int) -> Any:
    """A row that fails must not take the others along; its exception is its record."""
    try:
        return run_row(name, out, quick=quick, seed=seed)
    except Exception as error:
        return RuntimeError(f"{type(error).__name__}: {error}")


def _one_thread() -> None:
    """Workers share the cores; the guard comes before transformers or timm."""
    import torch

    from memaudit.loading.torchvision_guard import guard_torchvision

    torch.set_num_threads(1)
    with warnings.catch_warnings():  # one process has said it, or nobody needs to know
        warnings.simplefilter("ignore")
        guard_torchvision()
