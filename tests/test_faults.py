"""The switch that makes a step of the work fail."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections import Counter

import pytest

from memaudit import faults
from tests.processes import FOREGROUND


@pytest.fixture
def plan(monkeypatch):
    """Sets what shall fail; every test counts from nothing."""
    monkeypatch.setattr(faults, "_reached", Counter())
    return lambda text: monkeypatch.setenv(faults.VARIABLE, text)


def outcomes(name: str, times: int) -> list[str]:
    """What every one of so many arrivals at a step led to."""
    seen = []
    for _ in range(times):
        try:
            faults.step(name)
        except (MemoryError, OSError) as error:
            seen.append(type(error).__name__)
        else:
            seen.append("")
    return seen


def test_only_the_named_step_fails_and_only_the_first_time(plan):
    plan("write.opened=MemoryError")
    assert outcomes("write.flushed", 2) == ["", ""]
    assert outcomes("write.opened", 2) == ["MemoryError", ""]


def test_a_turn_and_a_range_of_turns_are_counted_from_one(plan):
    plan("a:3=MemoryError;b:2-3=MemoryError")
    assert outcomes("a", 4) == ["", "", "MemoryError", ""]
    assert outcomes("b", 4) == ["", "MemoryError", "MemoryError", ""]


@pytest.mark.parametrize("name", ["ENOSPC", "EROFS", "EDQUOT", "EIO"])
def test_a_system_error_is_raised_by_its_name(plan, name):
    plan(f"a={name}")
    with pytest.raises(OSError, match=os.strerror(getattr(errno, name))) as caught:
        faults.step("a")
    assert caught.value.errno == getattr(errno, name)


@pytest.mark.parametrize("action", faults.SIGNALS)
def test_a_signal_reaches_the_own_process(action):
    number = getattr(signal, faults.SIGNALS[action], None)
    if number is None:
        pytest.skip(f"{faults.SIGNALS[action]} does not exist on this system")
    program = (
        "" if action == "kill" else f"import signal; signal.signal({int(number)}, signal.SIG_DFL)\n"
    )
    program += "from memaudit.faults import step; step('a'); print('still here')"
    done = subprocess.run(
        [sys.executable, "-c", FOREGROUND + program],
        env={**os.environ, faults.VARIABLE: f"a={action}"},
        capture_output=True,
    )
    assert (done.returncode, done.stdout) == (-number, b"")
