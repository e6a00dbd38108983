"""The process that reads foreign pickles may do nothing, and does not outlive its time."""

import io
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from memaudit.errors import MachineError, MemauditError
from memaudit.loading import torch_file
from memaudit.loading.access import Access
from memaudit.loading.torch_file import read_torch
from tests.loading import pickle_writing as write

INERT = Access(allow_pickle=True)
posix = pytest.mark.skipif(os.name != "posix", reason="limits of a process are POSIX")


def checkpoint():
    buffer = io.BytesIO()
    torch.save({"state_dict": {"w": torch.ones(2)}}, buffer)
    return buffer.getvalue()


def refusal(data, access=INERT):
    with pytest.raises(MemauditError) as caught:
        read_torch(data, access=access)
    return caught.value


@posix
def test_the_child_can_neither_open_write_start_nor_grow():
    trial = """
import json, os, sys
sys.path.append(sys.argv[1])
from memaudit.loading.pickle_child import confine
confine({"seconds": 20, "memory": 300 << 20})
found = {}
def attempt(name, action):
    try:
        action()
        found[name] = "done"
    except (OSError, MemoryError) as error:
        found[name] = type(error).__name__
attempt("read", lambda: open(sys.argv[2]))
attempt("write", lambda: open(sys.argv[2] + ".new", "w"))
attempt("socket", lambda: os.pipe())
attempt("memory", lambda: bytearray(400 << 20))
os.write(1, json.dumps(found).encode())
"""
    folder = Path(torch_file.__file__).resolve().parents[2]
    command = [sys.executable, "-I", "-S", "-c", trial, str(folder), __file__]
    made = subprocess.run(command, capture_output=True, check=True)
    assert json.loads(made.stdout) == {
        "read": "OSError",
        "write": "OSError",
        "socket": "OSError",
        "memory": "MemoryError",
    }


def test_the_child_imports_neither_torch_nor_what_the_pickle_names(monkeypatch):
    monkeypatch.setattr(
        torch_file,
        "_START_CHILD",
        "import sys; sys.path.append(sys.argv[1]); "
        "from memaudit.loading import pickle_child; write = pickle_child._write; "
        "pickle_child._write = lambda raw: write(raw.replace(b'typing.Any', ' '.join("
        "n for n in ('torch', 'numpy', 'argparse', 'typing') if n in sys.modules).encode())); "
        "pickle_child.main()",
    )
    value = write.entries(
        sd=write.entries(w=write.tensor(write.storage("0", 1), (1,))),
        x=write.named("typing.Any"),
        n=write.call("argparse.Namespace"),
    )
    _, (note,) = read_torch(write.zip_file(write.pickled(value), {"0": write.ONE}), access=INERT)
    assert note == (
        "allow-pickle: 2 kinds of objects were made inert: typing, argparse.Namespace (1)"
    )


@pytest.mark.parametrize(
    ("start", "fact"),
    [
        ("import time; time.sleep(600)", "took longer than"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "ended by the system"),
        ("print('nonsense')", "did not answer as it should"),
        ("print('[' * 100000)", "did not answer as it should"),
        ("print('[]')", "did not answer as it should"),
        ("print('{\"exhausted\": true}')", "ran out of the memory"),
        ('print(\'{"refused": {"code": "E_PATH"}}\')', "did not answer as it should"),
    ],
)
def test_a_child_that_gives_no_answer_is_a_limit(monkeypatch, start, fact):
    monkeypatch.setattr(torch_file, "_START_CHILD", start)
    error = refusal(checkpoint(), Access(allow_pickle=True, timeout=1.0))
    assert error.code == "E_LIMIT"
    assert fact in error.fact
    assert error.hint


def test_a_child_that_talks_without_end_is_stopped(monkeypatch):
    monkeypatch.setattr(torch_file, "_START_CHILD", "while True: print('x' * 10000)")
    monkeypatch.setattr(torch_file, "MOST_ANSWER", 100_000)
    assert "more to say" in refusal(checkpoint()).fact


def test_a_child_that_cannot_start_is_the_machines_fault(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    error = refusal(checkpoint())
    assert isinstance(error, MachineError)
    monkeypatch.undo()
    monkeypatch.setattr(torch_file, "_START_CHILD", "raise SystemExit(3)")
    assert isinstance(refusal(checkpoint()), MachineError)


@posix
def test_an_interrupt_takes_the_child_along(monkeypatch):
    children, threads = [], threading.active_count()
    popen = subprocess.Popen

    class Watched(popen):
        def __init__(self, *arguments, **keywords):
            super().__init__(*arguments, **keywords)
            children.append(self)

        def wait(self, timeout=None):
            if len(children) == 1 and self.returncode is None and not self.interrupted:
                self.interrupted = True
                raise KeyboardInterrupt
            return super().wait(timeout)

        interrupted = False

    monkeypatch.setattr(subprocess, "Popen", Watched)
    monkeypatch.setattr(torch_file, "_START_CHILD", "import os, time; os.close(1); time.sleep(600)")
    with pytest.raises(KeyboardInterrupt):
        read_torch(checkpoint(), access=INERT)
    assert children[0].returncode == -9
    assert threading.active_count() == threads
