"""How far the work on one file is: written by who fetches or checks it, read by who reports."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Meter:
    """The current file: `done` of `total` bytes, if that is known, and of `most` at most.

    `furthest` is what was done over all attempts, `torn` counts attempts in a row that ended early
    and brought nothing new; `asking` is true from a question to the end of its answer.
    """

    name: str = ""
    most: int = 0
    total: int | None = None
    done: int = 0
    furthest: int = 0
    torn: int = 0
    asking: bool = False
    checking: bool = False

    def begin(self, name: str, *, total: int | None, most: int = 0, checking: bool = False) -> None:
        """Another file comes, or the same one is read again to check it."""
        self.name, self.total, self.most, self.checking = name, total, most, checking
        self.done = self.furthest = self.torn = 0

    @property
    def waiting(self) -> bool:
        """Whether the file is wanted but nobody was asked: another process may be fetching it."""
        return bool(self.name) and not (self.asking or self.done or self.checking)
