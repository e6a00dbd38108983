"""Calls into strangers' code are contained: errors, exits, prints and time."""

from __future__ import annotations

import signal
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


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), SourceError("E_X", "y")])
def test_what_means_something_to_memaudit_passes(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        guarded(raising(error))
    assert caught.value is error


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
