"""What is raised when data cannot be had."""

from __future__ import annotations

from memaudit.errors import MemauditError


class DataUnavailable(MemauditError):  # noqa: N818 - a state of the world, not a mistake
    """The data cannot be had here: the reason, and what to do about it."""

    def __init__(self, name: str, reason: str, *, hint: str) -> None:
        super().__init__("E_DATA", reason, hint=hint, source=name)

    @property
    def reason(self) -> str:
        """The reason alone, without code and next step."""
        return self.fact
