"""A switch for tests: makes a named step of the work kill the process, hang or raise.

`MEMAUDIT_FAULT="write.flushed=kill"` kills at that step, `"measure.pass:3=MemoryError"` raises
when the step is reached for the third time, `"measure.pass:1-4=MemoryError"` from the first to the
fourth; a semicolon stands between several plans. Without the variable a step costs one dictionary
look-up.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections import Counter

VARIABLE = "MEMAUDIT_FAULT"
#: Signals that a step sends to its own process.
SIGNALS = {"kill": "SIGKILL", "interrupt": "SIGINT", "terminate": "SIGTERM", "hangup": "SIGHUP"}
_reached: Counter[str] = Counter()


def step(name: str) -> None:
    """A named step was reached; nothing happens unless a test asked for a fault here."""
    plans = os.environ.get(VARIABLE)
    if plans is None:
        return
    _reached[name] += 1
    for plan in plans.split(";"):
        place, _, action = plan.partition("=")
        where, _, turns = place.partition(":")
        first, _, last = (turns or "1").partition("-")
        if where == name and int(first) <= _reached[name] <= int(last or first):
            _fail(action)


def _fail(action: str) -> None:
    if action in SIGNALS:
        os.kill(os.getpid(), getattr(signal, SIGNALS[action]))
    elif action == "hang":
        time.sleep(3600)
    elif action == "MemoryError":
        raise MemoryError
    elif action in errno.errorcode.values():  # the name of a system error: ENOSPC, EROFS, EIO
        number = getattr(errno, action)
        raise OSError(number, os.strerror(number))
    else:
        raise ValueError(f"{VARIABLE} knows no action {action!r}")
