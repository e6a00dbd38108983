"""Signals that end a run: what was measured is kept."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any, Self

from memaudit.cli.output import INTERRUPTED, say

if TYPE_CHECKING:
    from types import FrameType

WAITING = "stopping after the pass that is under way; once more to stop at once"


class Stopping:
    """Ctrl-C, SIGTERM and a lost terminal stop a run alike, and what was measured is kept.

    The first signal and the second raise KeyboardInterrupt: the one ends the measurement, the other
    whatever follows it. The third ends the process at once. A signal that was ignored from outside
    (nohup) stays ignored. Python handles signals between two of its own steps, and one step of a
    model may take a while: a thread notices them at once, says so, and ends the process at the
    next.
    """

    SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
    #: The same signal within so many seconds is its echo: timeout(1) and process groups send twice.
    ECHO = 0.25
    #: Seconds after which somebody who waits wants to know what for.
    PATIENCE = 1.0

    def __init__(self) -> None:
        self._received: list[int] = []
        self._last: dict[int, float] = {}
        self._before: dict[int, Any] = {}
        self._pipe: tuple[int, int] | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            numbers = [getattr(signal, name) for name in self.SIGNALS if hasattr(signal, name)]
            usual = (signal.SIG_DFL, signal.default_int_handler)
            for number in numbers:
                if signal.getsignal(number) in usual:
                    self._before[number] = signal.signal(number, self._handle)
            self._start_thread()
        return self

    def __exit__(self, *_: object) -> None:
        if self._pipe is not None:
            signal.set_wakeup_fd(-1)
            os.close(self._pipe[1])  # which ends the thread
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def exit_code(self, code: int) -> int:
        """The exit code of an interrupted run names the signal: 130, 143 or 129."""
        return 128 + self._received[0] if code == INTERRUPTED and self._received else code

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        now = time.monotonic()
        if now - self._last.get(number, -math.inf) < self.ECHO:
            return
        self._last[number] = now
        self._received.append(number)
        if len(self._received) > 2:
            os._exit(128 + self._received[0])
        raise KeyboardInterrupt

    def _start_thread(self) -> None:
        """Start the thread, unless the signals of this process wake somebody else already."""
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        other = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        if other != -1:
            signal.set_wakeup_fd(other)
            os.close(reading)
            os.close(writing)
            return
        self._pipe = (reading, writing)
        threading.Thread(target=self._read_signals, args=(reading,), daemon=True).start()

    def _read_signals(self, reading: int) -> None:
        first, when = 0, 0.0
        with os.fdopen(reading, "rb", buffering=0) as stream:
            while numbers := stream.read(1):
                if numbers[0] not in self._before:
                    continue
                now = time.monotonic()
                if self._received:  # the main thread is awake and takes care of it
                    continue
                if first and now - when > self.ECHO:
                    os._exit(128 + first)
                if not first:
                    first, when = numbers[0], now
                    timer = threading.Timer(self.PATIENCE, self._say_waiting)
                    timer.daemon = True
                    timer.start()

    def _say_waiting(self) -> None:
        if not self._received and self._pipe is not None:
            say(WAITING)
