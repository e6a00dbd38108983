"""Progress where nobody watches a bar: a line now and then, for logs that must not fall silent."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from memaudit.errors import clean

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import IO

#: Seconds before the first line, and between two of them: short work stays silent, and a log of
#: an hour has no more than a hundred lines.
FIRST, EVERY = 10.0, 30.0


class ProgressLines:
    """A plain line for long work; `advance` is the callback `(stage, done, total)`."""

    def __init__(self, stream: IO[str], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._next = clock() + FIRST
        self._stage, self._started = "", clock()

    def advance(self, stage: str, done: int, total: int) -> None:
        """Tell the stage, its share, and the time that it will still take, if it is time to."""
        now = self._clock()
        if stage != self._stage or done == 0:
            self._stage, self._started = stage, now
        if now < self._next or done >= total:  # what is over needs no waiting for
            return
        self._next = now + EVERY
        told = f"{clean(stage, limit=60)} {100 * done // total} %"
        if done > 0:
            told += f", about {_span((now - self._started) * (total - done) / done)} left"
        self._stream.write(f"memaudit: {told}\n")
        self._stream.flush()


def _span(seconds: float) -> str:
    if seconds <= 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
