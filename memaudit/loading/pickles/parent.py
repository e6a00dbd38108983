"""Starts the process that reads pickles with foreign objects, and waits no longer than allowed."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memaudit.errors import MachineError, SourceError, clean
from memaudit.loading.pickles.child import LENGTH

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import IO

    from memaudit.loading.access import Access

#: The package may stand in an ordinary folder, which comes last: nothing there hides a module.
_START = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from memaudit.loading.pickles.child import main; main()"
)
#: What a Python may need to find its own libraries; nothing else of the environment is passed on.
_KEPT = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "SystemRoot")
#: Memory of the child beyond the interpreter: a byte of pickle becomes at worst so many, until the
#: budget of instructions is spent; from there on bytes are long texts, of which there are copies.
ALLOWANCE = 256 << 20
PER_BYTE = 64
DENSE = 16 << 20
COPIES = 8
MOST_ANSWER = 128 << 20
_CODES = ("E_CORRUPT", "E_LIMIT", "E_UNSAFE_FORMAT", "E_UNSUPPORTED")


def describe_in_child(pickles: Sequence[bytes], access: Access) -> dict[str, Any]:
    """What the pickles say, as `describing.describe` tells it, found out by a confined process."""
    seconds = access.patience()
    size = sum(map(len, pickles))
    order = {
        "pickles": len(pickles),
        "max_tensors": access.limits.max_tensors,
        "memory": ALLOWANCE + PER_BYTE * min(size, DENSE) + COPIES * size,
        "seconds": math.ceil(seconds),
    }
    raw = _run(json.dumps(order), pickles, seconds=seconds)
    try:
        answer = json.loads(raw)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise _gave_up("did not answer as it should")
    if "exhausted" in answer:
        raise _gave_up("ran out of the memory that a model needs")
    if "refused" in answer:
        raise _refusal(answer["refused"])
    return answer


def _run(order: str, pickles: Sequence[bytes], *, seconds: float) -> bytes:
    """The answer of the child, which is gone when this returns or raises."""
    child = _started(order)
    late = threading.Event()

    def end() -> None:
        late.set()
        child.kill()

    clock = threading.Timer(seconds, end)
    clock.daemon = True
    with child:
        assert child.stdin is not None
        assert child.stdout is not None
        feeder = threading.Thread(target=_feed, args=(child.stdin, pickles), daemon=True)
        try:
            clock.start()
            feeder.start()
            answer = child.stdout.read(MOST_ANSWER + 1)
            if len(answer) > MOST_ANSWER:
                child.kill()
            status = child.wait()
        finally:
            clock.cancel()
            child.kill()
            for thread in (clock, feeder):
                if thread.is_alive():
                    thread.join()
    if late.is_set():
        raise _gave_up(f"took longer than {seconds:g} s", hint="allow more with --timeout S")
    if len(answer) > MOST_ANSWER:
        raise _gave_up("had more to say than a model has")
    if status < 0:
        raise _gave_up("was ended by the system for the time or the memory that it took")
    if status or not answer:
        fact = f"the process that reads pickles failed with status {status}"
        hint = "check the installation of memaudit"
        raise MachineError("E_MEMORY", fact, hint=hint, stage="open")
    return answer


def _started(order: str) -> subprocess.Popen[bytes]:
    """A Python that sees neither the environment nor the folders of this one."""
    if not sys.executable or getattr(sys, "frozen", False):
        fact = "objects beside the tensors need a Python interpreter of their own to be read"
        hint = "run memaudit from a normal Python"
        raise SourceError("E_UNSUPPORTED", fact, hint=hint, stage="open")
    folder = Path(__file__).resolve().parents[3]  # where memaudit itself lies
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", "-c", _START, str(folder), order],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in _KEPT if name in os.environ},
            start_new_session=True,
        )
    except OSError as error:
        fact = f"no process can be started to read the pickle: {clean(error.strerror)}"
        raise MachineError("E_MEMORY", fact, hint="close other programs", stage="open") from None


def _feed(pipe: IO[bytes], pickles: Sequence[bytes]) -> None:
    """Give the child its pickles; one that has already refused does not listen."""
    try:
        with pipe:
            for pickle in pickles:
                pipe.write(len(pickle).to_bytes(LENGTH, "little"))
                pipe.write(pickle)
    except OSError:
        pass


def _gave_up(fact: str, *, hint: str = "") -> SourceError:
    return SourceError(
        "E_LIMIT",
        f"the process that read the pickle {fact}",
        hint=hint or "the file is damaged or hostile; copy or download it again",
        stage="open",
    )


def _refusal(said: Any) -> SourceError:
    """The child's refusal, as far as it looks like one."""
    fields = said if isinstance(said, dict) else {}
    code, fact, hint = (str(fields.get(name, "")) for name in ("code", "fact", "hint"))
    if code not in _CODES:
        return _gave_up("did not answer as it should")
    return SourceError(code, fact[:5000], hint=clean(hint[:5000], limit=1200), stage="open")
