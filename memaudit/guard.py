"""Calls into other people's plugins: whatever they raise or however long they take is contained."""

from __future__ import annotations

import signal
import sys
import threading
import time
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING

from memaudit.errors import MachineError, MemauditError, clean

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


class TookTooLong(BaseException):
    """The alarm of a deadline; no plugin's `except Exception` may swallow it."""


@contextmanager
def contained(who: str, does: str, *, hint: str, seconds: float | None = None) -> Iterator[None]:
    """Turn whatever a stranger's code raises into E_PLUGIN; `who` `does` is the fact.

    The only broad `except` of the code base: a plugin may raise anything, and even SystemExit must
    not take the others along. What it prints must not end up inside a report on stdout.
    """
    try:
        with redirect_stdout(sys.stderr), deadline(seconds):
            yield
    except (KeyboardInterrupt, MemauditError, MemoryError):
        raise
    except TookTooLong:
        fact = f"{who} gave no answer within {seconds:g} s"
        raise MachineError("E_PLUGIN", fact, hint=hint, stage="plugins") from None
    except BaseException as error:
        fact = f"{who} {does}: {type(error).__name__}: {clean(error)}"
        raise MachineError("E_PLUGIN", fact, hint=hint, stage="plugins") from error


@contextmanager
def deadline(seconds: float | None) -> Iterator[None]:
    """Raise TookTooLong after so many seconds.

    Alarms exist on the main thread of POSIX systems only; elsewhere there is no limit. A call that
    never comes back to Python cannot be ended by anyone but the user.
    """
    alarms = hasattr(signal, "setitimer")
    on_main = threading.current_thread() is threading.main_thread()
    if seconds is None or not alarms or not on_main:
        yield
        return
    outer = signal.getitimer(signal.ITIMER_REAL)[0]
    if 0 < outer < seconds:  # whoever called waits less long
        yield
        return
    began = time.monotonic()
    armed = True

    def ring(number: int, frame: FrameType | None) -> None:
        del number, frame
        if armed:
            raise TookTooLong

    before = signal.signal(signal.SIGALRM, ring)
    # Again every second: the first alarm may fall into a place that swallows exceptions.
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        armed = False
        left = max(outer - (time.monotonic() - began), 0.001) if outer else 0.0
        signal.setitimer(signal.ITIMER_REAL, left, 1.0 if outer else 0.0)
        signal.signal(signal.SIGALRM, before)
