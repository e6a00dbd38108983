"""Calls into other people's plugins: whatever they raise or however long they take is contained."""

from __future__ import annotations

import signal
import sys
import threading
import time
from contextlib import contextmanager, nullcontext, redirect_stdout
from typing import TYPE_CHECKING

from memaudit.errors import MachineError, MemauditError, clean

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from types import FrameType


class TookTooLong(BaseException):
    """The alarm of one deadline; no plugin's `except Exception` may swallow it."""

    def __init__(self, deadline: object) -> None:
        self.deadline = deadline
        super().__init__("a deadline has passed")


class _Alarm:
    """What rings at the end of a deadline, until it is switched off."""

    def __init__(self) -> None:
        self.on = True

    def __call__(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self.on:
            raise TookTooLong(self)


@contextmanager
def contained(
    who: str, does: str, *, hint: str, seconds: float | None = None, memory: bool = False
) -> Iterator[None]:
    """Turn whatever a stranger's code raises into E_PLUGIN; `who` `does` is the fact.

    The only broad `except` of the code base: a plugin may raise anything, and even SystemExit must
    not take the others along. What it prints must not end up inside a report on stdout. A
    MemoryError is E_MEMORY, or goes up when `memory` says that somebody there can do with less.
    """
    alarm: object = None
    try:
        with _prints_to_stderr(), deadline(seconds) as alarm:
            yield
    except (KeyboardInterrupt, MemauditError):
        raise
    except MemoryError:
        if memory:
            raise
        fact = f"{who} ran out of memory"
        raise MachineError("E_MEMORY", fact, hint=hint, stage="plugins") from None
    except TookTooLong as late:
        if late.deadline is not alarm:  # somebody further out has waited long enough
            raise
        fact = f"{who} gave no answer within {seconds:g} s"
        raise MachineError("E_PLUGIN", fact, hint=hint, stage="plugins") from None
    except BaseException as error:
        fact = f"{who} {does}: {type(error).__name__}: {clean(error)}"
        raise MachineError("E_PLUGIN", fact, hint=hint, stage="plugins") from error


@contextmanager
def deadline(seconds: float | None) -> Iterator[object]:
    """Raise TookTooLong with the yielded object after so many seconds.

    Alarms exist on the main thread of POSIX systems only; elsewhere there is no limit, and none
    where the host program has an alarm of its own. A call that never comes back to Python cannot
    be ended by anyone but the user.
    """
    if seconds is None or not hasattr(signal, "setitimer") or not _on_main_thread():
        yield None
        return
    left, interval = signal.getitimer(signal.ITIMER_REAL)
    before = signal.getsignal(signal.SIGALRM)
    foreign = left > 0 and not isinstance(before, _Alarm)
    if foreign or 0 < left < seconds or before is None:  # whoever called waits less long
        yield None
        return
    began, alarm = time.monotonic(), _Alarm()
    signal.signal(signal.SIGALRM, alarm)
    # Again every second: the first alarm may fall into a place that swallows exceptions.
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield alarm
    finally:
        alarm.on = False
        rest = max(left - (time.monotonic() - began), 0.001) if left else 0.0
        signal.setitimer(signal.ITIMER_REAL, rest, interval if left else 0.0)
        signal.signal(signal.SIGALRM, before)


def _prints_to_stderr() -> AbstractContextManager[object]:
    """Prints of this process go to stderr; threads share stdout, so only the main one may."""
    return redirect_stdout(sys.stderr) if _on_main_thread() else nullcontext()


def _on_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
