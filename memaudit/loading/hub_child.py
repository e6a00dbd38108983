"""The process that talks to the hub, so that memaudit can end it at any moment."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from memaudit import faults
from memaudit.errors import MachineError, MemauditError, SourceError, clean
from memaudit.loading.access import Access, Limits, available_memory, require_room
from memaudit.loading.files import read_regular
from memaudit.loading.hub import (
    COMMIT,
    CONFIGS,
    LARGEST_BESIDE,
    LARGEST_INDEX,
    TOKENIZERS,
    Cache,
    Failure,
    Listed,
    choose_weights,
    code_among,
    differs,
    disk,
    host_of,
    no_address,
    not_a_hub,
    read_listing,
    shards_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from memaudit.loading.hub import Listing
    from memaudit.loading.hub_wire import Wire

# -- How far the work on one file is: written by who fetches or checks it, read by who reports.


@dataclass(slots=True)
class FileProgress:
    """The current file: `done` of `total` bytes, if that is known, and of `most` at most.

    `furthest` is what was done over all attempts, `torn` counts attempts in a row that ended early
    and brought nothing new; `asking` is true from a question to the end of its answer.
    """

    name: str = ""
    most: int = 0
    total: int | None = None
    done: int = 0
    furthest: int = 0
    torn: int = 0
    asking: bool = False
    checking: bool = False

    def begin(self, name: str, *, total: int | None, most: int = 0, checking: bool = False) -> None:
        """Another file comes, or the same one is read again to check it."""
        self.name, self.total, self.most, self.checking = name, total, most, checking
        self.done = self.furthest = self.torn = 0

    @property
    def waiting(self) -> bool:
        """Whether the file is wanted but nobody was asked: another process may be fetching it."""
        return bool(self.name) and not (self.asking or self.done or self.checking)


# -- From a listing to files: what is fetched, in which order, and what is checked.

_BLOCK = 1 << 20
_ONLINE = "run it once without --offline and HF_HUB_OFFLINE"


def from_cache(order: dict[str, Any], cache: Cache, meter: FileProgress) -> dict[str, Any]:
    """The copy of a revision on this machine; E_OFFLINE unless everything needed is there."""
    commit = cache.commit_of(order["revision"])
    if commit is None:
        fact = f"it is not in the cache {clean(cache.root)}"
        raise MachineError("E_OFFLINE", fact, hint=_ONLINE, stage="fetch")
    names = cache.files(commit)
    try:
        choice = choose_weights(names)
    except SourceError as error:
        if error.code != "E_NOT_FOUND":
            raise
        raise _incomplete(commit, "the weights, such as model.safetensors") from None
    weights = [choice.weights]
    if choice.is_index:
        weights += shards_of(_index(cache, commit, choice.weights))
    missing = [name for name in weights if name not in names]
    if missing:
        raise _incomplete(commit, ", ".join(clean(name, limit=80) for name in missing[:4]))
    for name in weights:
        _require_content(cache.snapshot(commit) / name, cache.announced(commit, name), meter)
    return _found(cache, commit, [])


def from_hub(
    order: dict[str, Any], cache: Cache, wire: Wire, *, step: Callable[[], None]
) -> dict[str, Any]:
    """Everything of a revision that an audit needs, fetched and checked."""
    name, revision = order["name"], order["revision"]
    access = Access(limits=Limits(max_bytes=order["max_bytes"]))
    listing = read_listing(wire.listing(name, revision or "main"), host=wire.host)
    step()
    if revision is not None and COMMIT.fullmatch(revision) and listing.commit != revision:
        raise not_a_hub(wire.host, "it answers for another commit than it was asked for")
    wire.commit = listing.commit
    choice = choose_weights(listing.files)
    beside, notes = _beside(listing, code=order.get("code", False))
    wanted = [*beside, listing.files[choice.weights]]
    _require_room(wanted, cache, listing.commit, access)
    for file in wanted:
        _fetch(file, cache, wire, access, step=step)
    if choice.is_index:
        index = _index(cache, listing.commit, choice.weights)
        shards = [listing.files[name] for name in shards_of(index) if name in listing.files]
        _require_room(shards, cache, listing.commit, access)
        for file in shards:
            _fetch(file, cache, wire, access, step=step)
    cache.remember(revision, listing.commit)
    if choice.others:
        left = ", ".join(clean(name, limit=60) for name in choice.others[:8])
        notes.append(f"{clean(choice.weights)} was fetched; not {left}")
    return _found(cache, listing.commit, notes)


def _index(cache: Cache, commit: str, name: str) -> bytes:
    return read_regular(cache.snapshot(commit) / name, most=LARGEST_INDEX)


def _found(cache: Cache, commit: str, notes: list[str]) -> dict[str, Any]:
    return {"folder": str(cache.snapshot(commit)), "commit": commit, "notes": notes}


def _incomplete(commit: str, what: str) -> MachineError:
    fact = f"the copy of commit {commit} in the cache lacks {what}"
    return MachineError("E_OFFLINE", fact, hint=_ONLINE, stage="fetch")


def _beside(listing: Listing, *, code: bool) -> tuple[list[Listed], list[str]]:
    """Configs, the files of a tokenizer, and code that is trusted, unless absurdly large."""
    names = (*CONFIGS, *TOKENIZERS, *(code_among(listing.files) if code else ()))
    there = [listing.files[name] for name in names if name in listing.files]
    small = [file for file in there if (file.size or 0) <= LARGEST_BESIDE]
    notes = [f"{file.name} was not fetched: too large" for file in there if file not in small]
    return small, notes


def _require_room(files: Iterable[Listed], cache: Cache, commit: str, access: Access) -> None:
    """Refuse what does not fit into memory or onto the disk before a byte of it is fetched."""
    require_room(sum(file.size or 0 for file in files), access)
    here = set(cache.files(commit))
    cache.require_space(sum(file.size or 0 for file in files if file.name not in here))


def _fetch(
    file: Listed, cache: Cache, wire: Wire, access: Access, *, step: Callable[[], None]
) -> None:
    """One file, the size and content of which are those that were announced."""
    most = file.size
    if most is None:  # the hub does not say: no more than may be opened
        most = access.limits.max_bytes or available_memory()
    _limit_file_size(most)
    faults.step("hub.fetch")
    path = wire.fetch(cache.name, file, most=most)
    step()
    if path != cache.snapshot(wire.commit) / file.name:
        raise not_a_hub(wire.host, "it answers for another file than it was asked for")
    _require_content(path, file, wire.meter)
    step()


def _require_content(path: Path, file: Listed, meter: FileProgress) -> None:
    """Compare with the announced size, SHA-256, or name of the git object."""
    size = path.stat().st_size
    if file.size is not None and size != file.size:
        raise differs(path, f"it has {size} bytes, not {file.size}")
    announced = file.sha256 or file.git
    if not announced:
        return
    digest = hashlib.sha256() if file.sha256 else hashlib.sha1(usedforsecurity=False)
    if not file.sha256:
        digest.update(b"blob %d\0" % size)
    meter.begin(file.name, total=size, checking=True)
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
            meter.done += len(block)
    if digest.hexdigest() != announced:
        kind = "SHA-256" if file.sha256 else "git object"
        raise differs(path, f"its {kind} is {digest.hexdigest()}, not {announced}")


def _limit_file_size(most: int) -> None:
    """Let no file of this process grow beyond what was announced, however it is packed."""
    try:
        import resource
    except ImportError:  # not on this system
        return
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    soft = max(most, _BLOCK)
    if hard == resource.RLIM_INFINITY or soft < hard:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# -- The process that talks to the hub, so that memaudit can end it at any moment.
#
# It reads one order from stdin and writes events to stdout, a JSON object a line. When stdin is
# closed, whoever wanted the files is gone, and so is this process.

#: The largest listing takes a few hundred megabytes; an answer that wants more is an attack.
MEMORY = 2 << 30
TICK = 0.2
#: Shorter secrets are no tokens, and would cut holes into innocent words.
_SHORTEST_TOKEN = 8
_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")


class EventWriter:
    """The only way out of this process: one object a line, without any secret."""

    def __init__(self) -> None:
        self.secrets = {os.environ.get(name, "").strip() for name in _TOKENS}
        self._lock = threading.Lock()
        # Whatever else prints to stdout must not be taken for an event.
        self._handle = os.dup(1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    def send(self, event: str, **facts: Any) -> None:
        """Tell whoever started this process."""
        safe = {name: self._without_secrets(fact) for name, fact in facts.items()}
        line = json.dumps({"event": event, **safe}).encode("ascii") + b"\n"
        with self._lock:
            while line:
                line = line[os.write(self._handle, line) :]

    def fail(self, failure: Failure) -> None:
        """Tell what went wrong."""
        error = failure.error
        facts = {"code": error.code, "fact": error.fact, "hint": error.hint}
        kind = type(error).__name__
        self.send("failed", kind=kind, unanswered=failure.unanswered, **facts)

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
    events = EventWriter()
    sys.excepthook = _unexpected(events)
    signal.signal(signal.SIGTERM, _leave)
    order = json.loads(_line())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _limit_memory()
    try:
        _carry_out(order, events)
    except MemauditError as error:
        events.fail(Failure(error))
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


def _carry_out(order: dict[str, Any], events: EventWriter) -> None:
    from huggingface_hub import constants

    meter = FileProgress()
    cache = Cache(Path(constants.HF_HUB_CACHE).expanduser().resolve(), order["name"])
    threading.Thread(target=_report, args=(meter, cache, events), daemon=True).start()
    if order["offline"] or constants.HF_HUB_OFFLINE:
        events.send("ready", host="")
        try:
            events.send("found", offline=True, **from_cache(order, cache, meter))
        except OSError as error:
            raise disk(error, cache.root) from None
        return
    if not host_of(constants.ENDPOINT):
        raise no_address()
    from memaudit.loading.hub_wire import Rejected, Wire, explained, http

    try:
        wire = Wire(meter)
    except OSError as error:  # the token is read from the same folder
        raise disk(error, cache.root) from None
    events.secrets.add(wire.token)
    events.send("ready", host=wire.host)
    try:
        found = from_hub(order, cache, wire, step=lambda: events.send("step"))
    except (Rejected, http.HTTPError, http.InvalidURL, OSError, ValueError, MemoryError) as error:
        events.fail(explained(error, wire, cache.root))
    else:
        events.send("found", offline=False, **found)


def _report(meter: FileProgress, cache: Cache, events: EventWriter) -> None:
    """Say every moment how far the file is, or how far another process is that fetches it."""
    before: dict[str, Any] = {}
    while True:
        time.sleep(TICK)
        waiting = meter.waiting
        facts = {"file": meter.name, "total": meter.total, "checking": meter.checking}
        now = {**facts, "waiting": waiting, "done": cache.growing() if waiting else meter.done}
        if now != before:
            events.send("bytes", **now)
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


def _unexpected(events: EventWriter) -> Any:
    """What nobody foresaw is named by its class; its text may hold anything."""

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        del error, trace
        fact = f"the client of the hub failed ({clean(kind.__name__)})"
        hint = "update huggingface_hub, or download the weights yourself and give their path"
        events.fail(Failure(MachineError("E_NETWORK", fact, hint=hint)))

    return hook
