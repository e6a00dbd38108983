"""The progress bar: only on a terminal, on stderr, gone when the audit is over."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def progress_bar(*, wanted: bool) -> Iterator[Callable[[str, int, int], None]]:
    """A callback `(stage, done, total)` that draws a bar where somebody sees it."""
    if not wanted or not sys.stderr.isatty():
        yield lambda stage, done, total: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskID,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from memaudit.errors import clean

    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    tasks: dict[str, TaskID] = {}

    def advance(stage: str, done: int, total: int) -> None:
        if stage not in tasks:
            for task in tasks.values():  # one line is enough, a host has dozens of stages
                bar.update(task, visible=False)
            tasks[stage] = bar.add_task(clean(stage, limit=40), total=total)
        bar.update(tasks[stage], completed=done, total=total)

    with bar:
        yield advance
