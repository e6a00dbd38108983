"""No code from a file runs: pickles are read by a confined process that imports nothing."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from memaudit.errors import MachineError, MemauditError
from memaudit.loading import open_checkpoint, pickles
from memaudit.loading.access import Access
from tests.loading import pickle_writing as write
from tests.loading.opening import opened, refusal, saved

posix = pytest.mark.skipif(os.name != "posix", reason="limits of a process are POSIX")


class Evil:
    """Unpickling it would write a canary file."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple:
        return os.system, (f"touch {self.canary}",)


@pytest.mark.parametrize("allow", [True, False])
@pytest.mark.parametrize("how", ["zip", "zip4", "legacy", "raw4", "npz"])
def test_a_hostile_pickle_is_never_run(tmp_path, monkeypatch, how, allow) -> None:
    canary, path = tmp_path / "canary", tmp_path / "model.safetensors"
    evil = {"w": torch.ones(2), "x": Evil(canary)}
    if how == "npz":
        np.savez(tmp_path / "m.npz", x=np.array([Evil(canary)], dtype=object))
        path = tmp_path / "m.npz"
    elif how.startswith("raw"):
        path.write_bytes(pickle.dumps(Evil(canary), protocol=int(how[-1])))
    else:
        protocol = 4 if how == "zip4" else 2
        path.write_bytes(saved(evil, zipped=how.startswith("zip"), protocol=protocol))
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    with pytest.raises(MemauditError) as caught:
        open_checkpoint(path, Access(allow_pickle=allow))
    assert caught.value.code == ("E_WEIGHTS" if how == "npz" and allow else "E_UNSAFE_FORMAT")
    assert not canary.exists()
    assert "weights_only" not in str(caught.value)
    if "zip" in how or how == "legacy":
        assert caught.value.fact == "the file would run os.system: it carries code"


def named(name: str) -> bytes:
    """A model beside which the pickle names this."""
    weights = write.entries(w=write.tensor(write.storage("0", 1), (1,)))
    value = write.entries(state_dict=weights, x=write.named(name))
    return write.zip_file(write.pickled(value), {"0": write.ONE})


CODE = (
    *("os.system", "posix.system", "subprocess.Popen", "builtins.eval", "builtins.__import__"),
    *("importlib.import_module", "runpy.run_path", "torch.hub.load", "torch.load"),
    *("torch.serialization.os.system", "builtins.dict.__class__", "types.CodeType"),
    *("numpy.f2py.crackfortran.myeval", "operator.methodcaller", "webbrowser.open"),
    *("code.InteractiveInterpreter.runcode", "cloudpickle.cloudpickle._make_function"),
    *("__builtin__.eval", "commands.getoutput"),  # as Python 2 named them
)
HONEST = (
    *("argparse.Namespace", "pathlib._local.PosixPath", "functools.partial", "__main__.Net"),
    *("copyreg._reconstructor", "copyreg.__newobj__", "torch.optim.adam.Adam"),
    *("torch._C._nn.gelu", "numpy._core.multiarray._reconstruct", "code.model.Net"),
    *("project.io.Reader", "lightning.pytorch.callbacks.model_checkpoint.ModelCheckpoint"),
)


@pytest.mark.parametrize("allow", [True, False])
def test_what_runs_code_is_refused_whatever_is_allowed(allow: bool) -> None:
    for name in CODE:
        error = refusal(named(name), allow_pickle=allow)
        assert (name, error.code) == (name, "E_UNSAFE_FORMAT")
        assert "would run" in error.fact


def test_what_honest_checkpoints_name_can_be_allowed() -> None:
    for name in HONEST:
        assert "--allow-pickle" in refusal(named(name)).hint
        assert list(opened(named(name), allow_pickle=True).tensors) == ["w"], name


def test_getattr_may_name_a_member_and_nothing_else() -> None:
    def file(*arguments: bytes) -> bytes:
        weights = write.entries(w=write.tensor(write.storage("0", 1), (1,)))
        value = write.entries(sd=weights, x=write.call("builtins.getattr", *arguments))
        return write.zip_file(write.pickled(value), {"0": write.ONE})

    colour = write.named("my.Colour")
    notes = opened(file(colour, write.text("RED")), allow_pickle=True).notes
    assert any("builtins.getattr (1)" in note for note in notes)
    for owner, name in ((colour, "__class__"), (colour, "a.b"), (write.call("my.thing"), "RED")):
        error = refusal(file(owner, write.text(name)), allow_pickle=True)
        assert "would run builtins.getattr" in error.fact


def test_a_whole_pickled_module_is_called_so_wherever_it_stands() -> None:
    for content in (torch.nn.GRU(2, 3), {"model": torch.nn.GRU(2, 3), "epoch": 3}):
        for zipped in (True, False):
            for allow in (True, False):
                error = refusal(saved(content, zipped=zipped), allow_pickle=allow)
                assert error.code == "E_UNSAFE_FORMAT"
                assert "whole pickled module" in error.fact
                assert "safetensors" in error.hint


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_torchscript_is_called_so(tmp_path: Path) -> None:
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), tmp_path / "m.pt")
    error = refusal(tmp_path / "m.pt")
    assert error.code == "E_UNSAFE_FORMAT"
    assert "TorchScript" in error.fact


def test_names_of_a_registry_are_refused() -> None:
    error = refusal(write.zip_file(write.pickled(write.entries(x=b"\x82\x01"))))
    assert error.code == "E_UNSAFE_FORMAT"
    assert "registry" in error.fact


# -- The process itself.

#: Stands in the place of the child: tries what a pickle would like to do, as the child may.
TRIAL = """
import json, os, runpy, sys
child = runpy.run_path(CHILD)
child["confine"](300 << 20, 20)
found = {}
def attempt(name, action):
    try:
        action()
        found[name] = "done"
    except (OSError, MemoryError, ImportError) as error:
        found[name] = type(error).__name__
attempt("read", lambda: open(CHILD))
attempt("write", lambda: open(CHILD + ".new", "w"))
attempt("pipe", os.pipe)
attempt("import", lambda: __import__("torch"))
attempt("memory", lambda: bytearray(400 << 20))
os.write(1, json.dumps(found).encode())
"""


@posix
def test_the_child_can_neither_open_write_connect_import_nor_grow() -> None:
    code = f"CHILD = {str(pickles._CHILD)!r}\n{TRIAL}"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True)
    assert done.stdout == (
        '{"read": "OSError", "write": "OSError", "pipe": "OSError", '
        '"import": "ModuleNotFoundError", "memory": "MemoryError"}'
    )


def test_the_child_has_nothing_of_our_environment(monkeypatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    seen = []
    run = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: seen.append(k["env"]) or run(*a, **k))
    opened(saved({"w": torch.ones(1)}))
    assert "HF_TOKEN" not in seen[0]


@pytest.mark.parametrize(
    ("script", "code", "fact"),
    [
        ("import time; time.sleep(600)", "E_LIMIT", "took longer than 1 s"),
        ("import os; os.kill(os.getpid(), 9)", "E_LIMIT", "ended by the system"),
        ("raise SystemExit(3)", "E_MEMORY", "failed with status 3"),
    ],
)
def test_a_child_that_gives_no_answer_is_an_error(tmp_path, monkeypatch, script, code, fact):
    (tmp_path / "child.py").write_text(script)
    monkeypatch.setattr(pickles, "_CHILD", tmp_path / "child.py")
    (tmp_path / "model.pt").write_bytes(saved({"w": torch.ones(2)}))
    with pytest.raises(MemauditError) as caught:
        open_checkpoint(tmp_path / "model.pt", Access(timeout=1.0 if "sleep" in script else 60.0))
    assert caught.value.code == code
    assert fact in caught.value.fact


def test_a_child_that_cannot_start_is_the_machines_fault(monkeypatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    assert isinstance(refusal(saved({"w": torch.ones(2)})), MachineError)


@posix
def test_an_interrupt_takes_the_child_along(tmp_path: Path) -> None:
    """A terminal sends the signal to memaudit alone: the child has a session of its own."""
    (tmp_path / "child.py").write_text(
        f"import os, time\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
        f"os.kill(os.getppid(), {int(signal.SIGINT)})\ntime.sleep(600)"
    )
    (tmp_path / "model.pt").write_bytes(saved({"w": torch.ones(2)}))
    code = (
        "import signal, sys; from pathlib import Path\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from memaudit.loading import open_checkpoint, pickles\n"
        "pickles._CHILD = Path(sys.argv[1]) / 'child.py'\n"
        "try:\n    open_checkpoint(Path(sys.argv[1]) / 'model.pt')\n"
        "except KeyboardInterrupt:\n    sys.exit(77)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert done.returncode == 77
    pid = (tmp_path / "pid").read_text()
    listed = subprocess.run(["ps", "-o", "stat=", "-p", pid], capture_output=True, text=True)
    assert listed.stdout.strip()[:1] in ("", "Z"), "it is gone, or nobody has buried it yet"


@pytest.mark.parametrize(
    "value",
    [
        b"](" + b"]" * 4_000_000 + b"e",
        b"".join(b"cm\nn%d\n0" % i for i in range(11_000)) + b"N",
        b"K\x01" + b"\x85" * 100_000,
        b"\x8d" + (1 << 60).to_bytes(8, "little"),
    ],
    ids=["lists", "names", "depth", "an exabyte"],
)
def test_a_pickle_that_wants_to_be_large_ends_in_a_refusal(value: bytes) -> None:
    data = write.zip_file(write.pickled(write.entries(x=value), protocol=4))
    assert refusal(data).code in ("E_LIMIT", "E_CORRUPT")
