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
    if not wanted or sys.stderr is None or not sys.stderr.isatty():
        yield lambda stage, done, total: None
        return
    from rich.console import Console

    from memaudit.reports.stage_bar import StageBar

    bar = StageBar(Console(stderr=True))
    with bar.drawn:
        yield bar.advance
