"""Signals that end a run: what was measured is kept."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any, Self

from memaudit.cli.output import INTERRUPTED

if TYPE_CHECKING:
    from types import FrameType


class Stopping:
    """Ctrl-C, SIGTERM and a lost terminal stop a run alike, and what was measured is kept.

    The first signal and the second raise KeyboardInterrupt: the one ends the measurement, the other
    whatever follows it. The third ends the process at once. A signal that was ignored from outside
    (nohup) stays ignored.
    """

    SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
    #: The same signal within so many seconds is its echo: timeout(1) and process groups send twice.
    ECHO = 0.25

    def __init__(self) -> None:
        self._heard: list[int] = []
        self._last: dict[int, float] = {}
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            numbers = [getattr(signal, name) for name in self.SIGNALS if hasattr(signal, name)]
            usual = (signal.SIG_DFL, signal.default_int_handler)
            for number in numbers:
                if signal.getsignal(number) in usual:
                    self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def exit_code(self, code: int) -> int:
        """The exit code of an interrupted run names the signal: 130, 143 or 129."""
        return 128 + self._heard[0] if code == INTERRUPTED and self._heard else code

    def _hear(self, number: int, frame: FrameType | None) -> None:
        del frame
        now = time.monotonic()
        if now - self._last.get(number, -math.inf) < self.ECHO:
            return
        self._last[number] = now
        self._heard.append(number)
        if len(self._heard) > 2:
            os._exit(128 + self._heard[0])
        raise KeyboardInterrupt
