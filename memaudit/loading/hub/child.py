"""The process that talks to the hub, so that memaudit can end it at any moment.

It reads one order from stdin and writes events to stdout, a JSON object a line. When stdin is
closed, whoever wanted the files is gone, and so is this process.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from memaudit.errors import MachineError, MemauditError, clean
from memaudit.loading.hub.cache import Cache
from memaudit.loading.hub.errors import Failure, disk, host_of, no_address
from memaudit.loading.hub.meter import Meter
from memaudit.loading.hub.steps import from_cache, from_hub

if TYPE_CHECKING:
    from types import TracebackType

#: The largest listing takes a few hundred megabytes; an answer that wants more is an attack.
MEMORY = 2 << 30
TICK = 0.2
#: Shorter secrets are no tokens, and would cut holes into innocent words.
_SHORTEST_TOKEN = 8
_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")


class Voice:
    """The only way out of this process: one object a line, without any secret."""

    def __init__(self) -> None:
        self.secrets = {os.environ.get(name, "").strip() for name in _TOKENS}
        self._lock = threading.Lock()
        # Whatever else prints to stdout must not be taken for an event.
        self._handle = os.dup(1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    def say(self, event: str, **facts: Any) -> None:
        """Tell whoever started this process."""
        told = {name: self._without_secrets(fact) for name, fact in facts.items()}
        line = json.dumps({"event": event, **told}).encode("ascii") + b"\n"
        with self._lock:
            while line:
                line = line[os.write(self._handle, line) :]

    def fail(self, failure: Failure) -> None:
        """Tell what went wrong."""
        error = failure.error
        facts = {"code": error.code, "fact": error.fact, "hint": error.hint}
        kind = type(error).__name__
        self.say("failed", kind=kind, unanswered=failure.unanswered, **facts)

    def _without_secrets(self, fact: Any) -> Any:
        if isinstance(fact, list):
            return [self._without_secrets(item) for item in fact]
        if isinstance(fact, str):
            for secret in self.secrets:
                if len(secret) >= _SHORTEST_TOKEN:
                    fact = fact.replace(secret, "…")
        return fact


def main() -> NoReturn:
    """Carry out one order, and end at once: nobody waits for an interpreter to tidy up."""
    voice = Voice()
    sys.excepthook = _unexpected(voice)
    signal.signal(signal.SIGTERM, _leave)
    order = json.loads(_line())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _limit_memory()
    try:
        _carry_out(order, voice)
    except MemauditError as error:
        voice.fail(Failure(error))
    except SystemExit:
        os._exit(1)
    os._exit(0)


def _line() -> bytes:
    """The first line of stdin, past the buffer that a thread must not hold at the end."""
    found = b""
    while not found.endswith(b"\n"):
        piece = os.read(0, 1 << 16)
        if not piece:
            os._exit(1)
        found += piece
    return found


def _carry_out(order: dict[str, Any], voice: Voice) -> None:
    from huggingface_hub import constants

    meter = Meter()
    cache = Cache(Path(constants.HF_HUB_CACHE).expanduser().resolve(), order["name"])
    threading.Thread(target=_report, args=(meter, cache, voice), daemon=True).start()
    if order["offline"] or constants.HF_HUB_OFFLINE:
        voice.say("ready", host="")
        try:
            voice.say("found", offline=True, **from_cache(order, cache, meter))
        except OSError as error:
            raise disk(error, cache.root) from None
        return
    if not host_of(constants.ENDPOINT):
        raise no_address()
    from memaudit.loading.hub.wire import Rejected, Wire, explained, http

    try:
        wire = Wire(meter)
    except OSError as error:  # the token is read from the same folder
        raise disk(error, cache.root) from None
    voice.secrets.add(wire.token)
    voice.say("ready", host=wire.host)
    try:
        found = from_hub(order, cache, wire, step=lambda: voice.say("step"))
    except (Rejected, http.HTTPError, http.InvalidURL, OSError, ValueError, MemoryError) as error:
        voice.fail(explained(error, wire, cache.root))
    else:
        voice.say("found", offline=False, **found)


def _report(meter: Meter, cache: Cache, voice: Voice) -> None:
    """Say every moment how far the file is, or how far another process is that fetches it."""
    before: dict[str, Any] = {}
    while True:
        time.sleep(TICK)
        waiting = meter.waiting
        facts = {"file": meter.name, "total": meter.total, "checking": meter.checking}
        now = {**facts, "waiting": waiting, "done": cache.growing() if waiting else meter.done}
        if now != before:
            voice.say("bytes", **now)
            before = now


def _end_with_parent() -> None:
    while os.read(0, 1 << 16):
        pass
    os.kill(os.getpid(), signal.SIGTERM)  # the main thread removes what is half written
    time.sleep(5)
    os._exit(1)


def _leave(number: int, frame: object) -> NoReturn:
    del frame
    signal.signal(number, signal.SIG_IGN)  # a second one must not end the tidying up
    sys.exit(1)


def _limit_memory() -> None:
    try:
        import resource
    except ImportError:  # not on this system
        return
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    soft = MEMORY if hard == resource.RLIM_INFINITY else min(MEMORY, hard)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _unexpected(voice: Voice) -> Any:
    """What nobody foresaw is named by its class; its text may hold anything."""

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        del error, trace
        fact = f"the client of the hub failed ({clean(kind.__name__)})"
        hint = "update huggingface_hub, or download the weights yourself and give their path"
        voice.fail(Failure(MachineError("E_NETWORK", fact, hint=hint)))

    return hook
