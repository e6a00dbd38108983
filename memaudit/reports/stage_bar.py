"""A bar for the stage that is under way, with the time that it will still take."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    from collections.abc import Callable

    from rich.console import Console
    from rich.progress import Task, TaskID

UNKNOWN = "-:--:--"


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
    """One line for the present stage; `advance` is the callback `(stage, done, total)`."""

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

    def advance(self, stage: str, done: int, total: int) -> None:
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
