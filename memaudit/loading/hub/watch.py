"""Starts the process that talks to the hub, and ends it when it does not get on."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memaudit.errors import MachineError, SourceError
from memaudit.loading.hub.errors import Failure, occupied, stalled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memaudit.loading.access import Access

#: Bytes per time of patience that count as getting on; a drip does not.
STRIDE = 64 << 10
#: The interpreter and the hub's client start in half a second, on a busy machine in ten.
START = 60.0
#: Seconds for the child to remove what is half written.
GRACE = 5.0
_BOOT = (
    "import sys; sys.path[:] = sys.argv[1:]; from memaudit.loading.hub.child import main; main()"
)
_ERRORS = {"SourceError": SourceError, "MachineError": MachineError}
#: Xet is a second protocol for the same bytes, past everything that looks at them here.
_ENVIRONMENT = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_XET": "1",
}


@dataclass(frozen=True, slots=True)
class Order:
    """What is wanted of the hub, or with `offline` of its cache; `code` includes Python files."""

    name: str
    revision: str | None
    max_bytes: int
    offline: bool
    code: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """The files of a commit; `offline` when nobody asked the hub about them."""

    folder: Path
    commit: str
    notes: tuple[str, ...]
    offline: bool


def carry_out(order: Order, access: Access) -> Found | Failure:
    """What came of an order."""
    with _child(order) as events:
        return _Watch(access).follow(events)


@contextmanager
def _child(order: Order) -> Iterator[queue.SimpleQueue[dict[str, Any]]]:
    """The events of a child that does not outlive this block.

    Its standard input stays open as long as somebody waits for it.
    """
    child = _started(order)
    try:
        events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        threading.Thread(target=_read, args=(child, events), daemon=True).start()
        if child.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                child.stdin.write(json.dumps(asdict(order)).encode("ascii") + b"\n")
                child.stdin.flush()
        yield events
    finally:
        _end(child)


def _started(order: Order) -> subprocess.Popen[bytes]:
    offline = {"HF_HUB_OFFLINE": "1"} if order.offline else {}
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-W", "ignore", "-c", _BOOT, *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **_ENVIRONMENT, **offline},
            start_new_session=True,
        )
    except OSError as error:
        why = error.strerror or type(error).__name__
        fact = f"a process to fetch the files could not be started: {why}"
        raise MachineError("E_MEMORY", fact, hint="close other programs", stage="fetch") from None


def _read(child: subprocess.Popen[bytes], events: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Pass on what the child says, and at last that it says nothing more."""
    if child.stdout is not None:
        # Half a line is the end of a child that was killed.
        with child.stdout as stream, contextlib.suppress(ValueError):
            for line in stream:
                events.put(json.loads(line))
    events.put({"event": "ended"})


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            child.stdin.close()
    child.terminate()
    try:
        child.wait(GRACE)
    except subprocess.TimeoutExpired:
        pass
    finally:
        if child.returncode is None:
            _kill(child)
            child.wait()


def _kill(child: subprocess.Popen[bytes]) -> None:
    if not hasattr(os, "killpg"):
        child.kill()
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


class _Watch:
    """Follows the events of a child; the clock starts anew whenever it gets on."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self.host = ""
        self.patience = max(START, access.patience())
        self.alive = time.monotonic()
        #: The current file, whether another process holds it, and whether it is being checked.
        self.task = ("", False, False)
        self.mark = 0

    def follow(self, events: queue.SimpleQueue[dict[str, Any]]) -> Found | Failure:
        while True:
            try:
                left = self.alive + self.patience - time.monotonic()
                event = events.get(timeout=max(left, 0.0))
            except queue.Empty:
                return self._stalled()
            match event["event"]:
                case "found":
                    notes = tuple(event["notes"])
                    folder = Path(event["folder"])
                    return Found(folder, event["commit"], notes, event["offline"])
                case "failed":
                    return _failure(event)
                case "ended":
                    return Failure(_unexplained())
                case "ready":
                    self.host = event["host"]
                    if self.host:  # a slow disk is not a silent hub
                        self.patience = self.access.patience()
                    self._gets_on()
                case "step":
                    self._gets_on()
                case "bytes":
                    self._count(event)

    def _gets_on(self) -> None:
        self.alive = time.monotonic()

    def _count(self, event: dict[str, Any]) -> None:
        task = (event["file"], event["waiting"], event["checking"])
        if task != self.task:
            self.task, self.mark = task, 0
        if event["done"] - self.mark >= STRIDE:
            self.mark = event["done"]
            self._gets_on()
        if event["done"] and event["total"] is not None:
            what = "checking" if event["checking"] else "downloading"
            self.access.advance(f"{what} {event['file']}", event["done"], event["total"])

    def _stalled(self) -> Failure:
        file, waiting, _ = self.task
        if waiting:
            return occupied(file, self.patience)
        if not self.host:
            fact = f"the cache of the hub could not be read within {self.patience:g} s"
            hint = "check the disk, or choose another folder with HF_HOME"
            return Failure(MachineError("E_DISK", fact, hint=hint, stage="fetch"))
        return stalled(self.host, self.patience)


def _failure(event: dict[str, Any]) -> Failure:
    kind = _ERRORS[event["kind"]]
    error = kind(event["code"], event["fact"], hint=event["hint"], stage="fetch")
    return Failure(error, event["unanswered"])


def _unexplained() -> MachineError:
    fact = "the process that fetches the files ended without a word"
    hint = "try again; download the weights yourself and give their path if it stays so"
    return MachineError("E_NETWORK", fact, hint=hint, stage="fetch")
