"""Signals that come while Python is busy in a long native step."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

#: A native call of some seconds that Python cannot interrupt, and signals that come meanwhile.
SCRIPT = """
import hashlib, os, signal, sys, threading, time
from memaudit.cli.signals import Stopping

def send():
    for number in map(int, sys.argv[2:]):
        time.sleep(0.5)
        os.kill(os.getpid(), number)

code = 0
with Stopping() as stopping:
    Stopping.PATIENCE = 0.1
    threading.Thread(target=send, daemon=True).start()
    try:
        hashlib.pbkdf2_hmac("sha256", b"x", b"y", int(sys.argv[1]))
        time.sleep(1)
    except KeyboardInterrupt:
        code = stopping.exit_code(130)
        print("kept")
sys.exit(code)
"""


def run(iterations: int, *signals: signal.Signals) -> tuple[int, str, str]:
    command = [sys.executable, "-c", SCRIPT, str(iterations), *(str(int(s)) for s in signals)]
    made = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    return made.returncode, made.stdout, made.stderr


def test_one_signal_is_heard_at_once_and_obeyed_after_the_step() -> None:
    code, out, err = run(5_000_000, signal.SIGTERM)
    assert (code, out) == (143, "kept\n")
    assert "stopping after the pass that is under way" in err


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_one_ends_the_process_in_the_middle_of_the_step(second: signal.Signals) -> None:
    code, out, err = run(1_000_000_000, signal.SIGTERM, second)
    assert (code, out) == (143, "")
    assert "Traceback" not in err


def test_without_a_signal_nothing_is_said() -> None:
    assert run(1000) == (0, "", "")
