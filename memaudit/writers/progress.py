"""Progress on stderr: a bar on a terminal, gone when the audit is over; elsewhere few lines."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any, cast

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from memaudit.errors import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.progress import Task, TaskID

UNKNOWN = "-:--:--"
#: Seconds before the first line, and between two of them: short work stays silent, and a log of
#: an hour has no more than a hundred lines.
FIRST, EVERY = 10.0, 30.0


@contextmanager
def progress_bar(*, wanted: bool) -> Iterator[Callable[[str, int, int], None]]:
    """A callback `(stage, done, total)`: a bar where somebody sees it, in a log a line at times."""
    if not wanted or sys.stderr is None:
        yield lambda stage, done, total: None
        return
    stream = cast("IO[str]", IgnoringErrors(sys.stderr))
    if not sys.stderr.isatty():
        yield ProgressLines(stream)
        return
    bar = StageBar(Console(file=stream))
    with bar.drawn:
        yield bar


class IgnoringErrors:
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


class TimeLeft(ProgressColumn):
    """The time until the moment in the task's field `end`, counted down between two passes."""

    def render(self, task: Task) -> Text:
        """The time as h:mm:ss; rich's own column is silent until the second pass is done."""
        end = task.fields["end"]
        if end is None:
            return Text(UNKNOWN, style="progress.remaining")
        minutes, seconds = divmod(max(round(end - task.get_time()), 0), 60)
        hours, minutes = divmod(minutes, 60)
        return Text(f"{hours}:{minutes:02}:{seconds:02}", style="progress.remaining")


class StageBar:
    """One line for the present stage; a callback `(stage, done, total)`."""

    def __init__(self, console: Console, *, clock: Callable[[], float] | None = None) -> None:
        self.drawn = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeLeft(),
            console=console,
            get_time=clock,
            transient=True,
        )
        self._stages: dict[str, tuple[TaskID, float]] = {}

    def say(self, text: str) -> None:
        """Write a sentence above the bar."""
        self.drawn.console.print(f"memaudit: {clean(text)}", markup=False, highlight=False)

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Move the bar; the first pass that is done gives the first estimate."""
        now = self.drawn.get_time()
        if stage not in self._stages or done == 0:  # a stage that begins again counts anew
            for task, _ in self._stages.values():  # one line is enough, a host has dozens of stages
                self.drawn.update(task, visible=False)
            made = self.drawn.add_task(clean(stage, limit=40), total=total, end=None)
            self._stages[stage] = made, now
        task, started = self._stages[stage]
        known = done > 0 and now > started
        end = now + (now - started) * (total - done) / done if known else None
        self.drawn.update(task, completed=done, total=total, end=end)


class ProgressLines:
    """A plain line for long work; a callback `(stage, done, total)`."""

    def __init__(self, stream: IO[str], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._next = clock() + FIRST
        self._stage, self._started = "", clock()

    def say(self, text: str) -> None:
        """Write a sentence."""
        self._stream.write(f"memaudit: {clean(text)}\n")
        self._stream.flush()

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Write the stage, its share, and the time that it will still take, if it is time to."""
        now = self._clock()
        if stage != self._stage or done == 0:
            self._stage, self._started = stage, now
        if now < self._next or done >= total:  # what is over needs no waiting for
            return
        self._next = now + EVERY
        line = f"{clean(stage, limit=60)} {100 * done // total} %"
        if done > 0:
            line += f", about {_span((now - self._started) * (total - done) / done)} left"
        self.say(line)


def _span(seconds: float) -> str:
    if seconds <= 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
