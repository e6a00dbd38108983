"""Progress on stderr: a bar on a terminal, gone when the audit is over; elsewhere few lines."""

from __future__ import annotations

import sys
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Forgiving:
    """A terminal that may be closed: what it does not take is dropped, and the audit goes on."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write what can be written."""
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Show what can be shown."""
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def progress_bar(*, wanted: bool) -> Iterator[Callable[[str, int, int], None]]:
    """A callback `(stage, done, total)`: a bar where somebody sees it, in a log a line at times."""
    if not wanted or sys.stderr is None:
        yield lambda stage, done, total: None
        return
    stream = cast("IO[str]", Forgiving(sys.stderr))
    if not sys.stderr.isatty():
        from memaudit.reports.progress_lines import ProgressLines

        yield ProgressLines(stream).advance
        return
    from rich.console import Console

    from memaudit.reports.stage_bar import StageBar

    bar = StageBar(Console(file=stream))
    with bar.drawn:
        yield bar.advance
