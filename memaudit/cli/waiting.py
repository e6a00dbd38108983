"""A sign of life for work that takes longer than a person expects."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from threading import Timer
from typing import IO, TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Nobody wonders before that many seconds.
SOON = 1.0


@contextmanager
def waiting(words: str) -> Iterator[None]:
    """A spinner on stderr from the second second on, where it is a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    from memaudit.writers.progress import Forgiving

    status = Console(file=cast("IO[str]", Forgiving(sys.stderr))).status(words)
    timer = Timer(SOON, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()
