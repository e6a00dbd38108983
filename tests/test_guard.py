"""Calls into strangers' code are contained: errors, exits, prints and time."""

from __future__ import annotations

import signal
import sys
import threading
import time

import pytest

from memaudit.errors import MachineError, SourceError
from memaudit.guard import TookTooLong, contained, deadline


def guarded(action, **options):
    with contained("adapters/x from x:Y (x)", "fails", hint="uninstall it", **options):
        return action()


def raising(error: BaseException):
    def action() -> None:
        raise error

    return action


@pytest.mark.parametrize(
    "error", [ValueError("no"), SystemExit(0), GeneratorExit(), RuntimeError()]
)
def test_whatever_a_stranger_raises_becomes_one_error(error: BaseException) -> None:
    with pytest.raises(MachineError) as caught:
        guarded(raising(error))
    assert caught.value.code == "E_PLUGIN"
    assert "adapters/x from x:Y (x) fails: " + type(error).__name__ in caught.value.fact


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SourceError("E_X", "y")])
def test_what_means_something_to_memaudit_passes(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        guarded(raising(error))
    assert caught.value is error


def test_a_shortage_of_memory_is_named_or_goes_up_to_who_can_help() -> None:
    with pytest.raises(MachineError) as caught:
        guarded(raising(MemoryError()))
    assert caught.value.code == "E_MEMORY"
    with pytest.raises(MemoryError):
        guarded(raising(MemoryError()), memory=True)


def test_the_outer_deadline_is_blamed_on_the_outer_plugin() -> None:
    with (
        pytest.raises(MachineError, match=r"probes/outer gave no answer within 0\.05 s"),
        contained("probes/outer", "fails", hint="", seconds=0.05),
    ):
        guarded(lambda: time.sleep(60))


def test_an_alarm_of_the_host_program_is_left_alone() -> None:
    rung = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(True))
    signal.setitimer(signal.ITIMER_REAL, 100, 30)
    try:
        with deadline(0.01):
            time.sleep(0.05)
        left, interval = signal.getitimer(signal.ITIMER_REAL)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert (rung, interval) == ([], 30)
    assert 90 < left <= 100


def test_threads_leave_stdout_alone() -> None:
    seen = []
    thread = threading.Thread(target=lambda: guarded(lambda: seen.append(sys.stdout)))
    thread.start()
    thread.join()
    assert seen == [sys.stdout]


def test_what_a_stranger_prints_goes_to_stderr(capsys) -> None:
    guarded(lambda: print("hello"))
    out, err = capsys.readouterr()
    assert (out, err) == ("", "hello\n")


def test_a_stranger_who_hangs_is_left_behind() -> None:
    with pytest.raises(MachineError, match="no answer within"):
        guarded(lambda: time.sleep(60), seconds=0.05)


def test_a_deadline_that_holds_leaves_no_alarm_behind() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with deadline(30):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) is before


def test_the_shorter_of_two_deadlines_rings() -> None:
    with pytest.raises(TookTooLong), deadline(0.05), deadline(60):
        time.sleep(60)
    with pytest.raises(TookTooLong), deadline(60), deadline(0.05):
        time.sleep(60)


def test_an_outer_deadline_goes_on_after_an_inner_one() -> None:
    with deadline(30):
        with deadline(10):
            pass
        left = signal.getitimer(signal.ITIMER_REAL)[0]
    assert 0 < left <= 30


def test_on_another_thread_there_is_no_alarm_and_no_failure() -> None:
    done = []

    def work() -> None:
        with deadline(0.001):
            time.sleep(0.01)
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]
