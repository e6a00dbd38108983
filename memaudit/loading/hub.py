"""Repositories of the hub: what an audit needs of them, and the process that fetches it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import queue
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from memaudit.errors import ArgumentError, MachineError, MemauditError, SourceError, clean, listed
from memaudit.loading.access import human_size
from memaudit.loading.files import (
    INDEX,
    LONGEST_NAME,
    SUFFIXES,
    plain_name,
    rank_weights,
    stem_and_suffix,
)
from memaudit.loading.formats import BadJson, TooManyPieces, parse_object

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memaudit.loading.access import Access

# -- What goes wrong between memaudit and a hub, in sentences that never quote the hub.

AGAIN = "try again later, or use --offline if a copy is in the cache"
WAIT = "try again, wait longer with --timeout SECONDS, or use --offline if a copy is in the cache"
LOG_IN = "log in with `hf auth login` or set HF_TOKEN"
#: Words that a hub puts into its answers.
_INVALID_TOKEN = "Invalid credentials in Authorization header"  # noqa: S105
_DISABLED = "Access to this resource is disabled."
_LONGEST_WAIT = 10**6


@dataclass(frozen=True, slots=True)
class Failure:
    """An error, and in a few words why the hub gave no answer, if that is what happened."""

    error: MemauditError
    unanswered: str = ""


def not_a_hub(host: str, why: str) -> MachineError:
    """The answer came from something that is no hub: a proxy, a login page, a wrong address."""
    return MachineError(
        "E_NETWORK",
        f"what answers at {clean(host)} is not a hub: {why}",
        hint="check HF_ENDPOINT and the proxy, and try again",
        stage="fetch",
    )


def host_of(url: str) -> str:
    """Host and port of a web address, without the password that may stand before them."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:  # a port that is no number
        return ""
    known = parts.scheme in ("http", "https") and parts.hostname
    return f"{parts.hostname}{port}" if known else ""


def no_address() -> MachineError:
    """The address of the hub, which may hold a password, cannot be one."""
    hint = "unset HF_ENDPOINT, or give the address of a hub, such as https://huggingface.co"
    return MachineError("E_NETWORK", "HF_ENDPOINT is no web address", hint=hint, stage="fetch")


def no_answer(host: str, why: str, *, hint: str = AGAIN) -> Failure:
    """The hub could not be asked; a copy in the cache may stand in."""
    fact = f"the hub at {clean(host)} {why}"
    return Failure(MachineError("E_NETWORK", fact, hint=hint, stage="fetch"), why)


def stalled(host: str, seconds: float) -> Failure:
    """Nothing came within the user's patience."""
    return no_answer(host, f"gave no answer for {seconds:g} s", hint=WAIT)


def occupied(name: str, seconds: float) -> Failure:
    """Somebody else on this machine holds the lock of a file, and does not get on with it."""
    fact = f"another process is fetching {clean(name)} and got no further for {seconds:g} s"
    hint = "wait for it or end it, and try again"
    return Failure(MachineError("E_NETWORK", fact, hint=hint, stage="fetch"))


def torn(host: str, name: str) -> Failure:
    """The connection ended early; nothing of it is kept."""
    fact = f"{clean(host)} sent fewer bytes of {clean(name)} than announced"
    error = MachineError("E_NETWORK", fact, hint="try again", stage="fetch")
    return Failure(error)


def overlong(host: str, name: str) -> MachineError:
    """More came than the listing says."""
    fact = f"{clean(host)} sent more bytes of {clean(name)} than announced"
    return MachineError("E_NETWORK", fact, hint="check HF_ENDPOINT, and try again", stage="fetch")


def differs(path: Path, what: str) -> SourceError:
    """A file of the cache is not the one that the hub lists; whose fault it is remains open."""
    return SourceError(
        "E_CORRUPT",
        f"{clean(path.name)} is not what the hub announces: {what}",
        hint=f"remove {clean(path)} and the file that it links to, and try again",
        stage="fetch",
    )


def refused(status: int, headers: Mapping[str, str], *, host: str, token: bool) -> Failure:
    """What an HTTP status means; of the hub's own words only known ones are looked at."""
    code, message = headers.get("x-error-code"), headers.get("x-error-message")
    if status == 429 or status >= 500 or status == 408:
        return no_answer(host, f"answered {status}{_retry(status, headers)}")
    if code == "GatedRepo":
        fact = "the repository is gated, and you are not on its list"
        hint = f"accept the terms on its page, then {LOG_IN}"
    elif status == 401 and (message == _INVALID_TOKEN or (token and code != "RepoNotFound")):
        fact, hint = "the hub refused the token that it was sent", f"{LOG_IN} anew"
    elif status == 404 or code == "RepoNotFound":
        return Failure(_not_found(code))
    elif status == 401:
        fact, hint = "the hub asks for a login", LOG_IN
    elif message == _DISABLED:
        fact, hint = "the hub has disabled access to it", "its page on the hub may say why"
    elif status == 403:
        fact = "the hub does not let you read it"
        hint = f"accept the terms on its page, if there are any, and {LOG_IN}"
    else:
        return Failure(not_a_hub(host, f"it answered {status}"))
    return Failure(SourceError("E_GATED", fact, hint=hint, stage="fetch"))


def _not_found(code: str | None) -> SourceError:
    if code == "EntryNotFound":
        fact, hint = "the hub lists a file that it does not have", "try again"
    elif code == "RevisionNotFound":
        fact, hint = "the repository has no such revision", "give a branch, a tag or a commit"
    else:
        fact = "the hub has no such repository or revision"
        hint = "check the name; a private one needs HF_TOKEN"
    return SourceError("E_NOT_FOUND", fact, hint=hint, stage="fetch")


def _retry(status: int, headers: Mapping[str, str]) -> str:
    """The seconds after which the hub wants to be asked again, if it says so."""
    wait = headers.get("retry-after", "").strip()
    words = " (too many requests)" if status == 429 else ""
    if wait.isascii() and wait.isdecimal() and len(wait) < 8 and int(wait) <= _LONGEST_WAIT:
        return f"{words} and wants to be left alone for {int(wait)} s"
    return words


def unconnected(error: BaseException, host: str) -> Failure:
    """Why there is no connection, from the system's error beneath the client's."""
    for cause in causes(error):
        if isinstance(cause, ConnectionRefusedError):
            return no_answer(host, "refused the connection", hint=f"check HF_ENDPOINT; {AGAIN}")
        if isinstance(cause, socket.gaierror):
            why = "cannot be found: its name has no address"
            return no_answer(host, why, hint=f"check the network and HF_ENDPOINT; {AGAIN}")
        if isinstance(cause, ssl.SSLError):
            why = "could not prove who it is (TLS)"
            return no_answer(
                host, why, hint=f"check the clock, the certificates and the proxy; {AGAIN}"
            )
    return no_answer(host, "cannot be reached", hint=f"check the network; {AGAIN}")


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what led to it; chains are short, a ring would not end."""
    following: BaseException | None = error
    for _ in range(20):
        if following is None:
            return
        yield following
        following = following.__cause__ or following.__context__


def disk(error: OSError, cache: Path) -> MachineError:
    """Writing into the cache failed."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        fact = f"the disk that holds {clean(cache)} is full"
        hint = "free some space, or choose another folder with HF_HOME"
    else:
        why = error.strerror or type(error).__name__
        fact = f"the cache {clean(cache)} cannot be used: {clean(why)}"
        hint = "check its permissions, or choose another folder with HF_HOME"
    return MachineError("E_DISK", fact, hint=hint, stage="fetch")


# -- The hub's listing of a repository: untrusted JSON, read as plain data.

#: A file takes about 300 bytes of the listing; the hub advises against more than 100 000 files.
LARGEST_LISTING = 32 << 20
MOST_FILES = 100_000
_MOST_PIECES = 20 * MOST_FILES
#: Nobody has a file of an exabyte: such a size is no size.
_LARGEST_SIZE = 1 << 60
COMMIT = re.compile(r"[0-9a-f]{40}")
SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Listed:
    """One file as it was announced: None and "" stand for what was not said.

    `sha256` is that of the content of a large file, `git` the git object of a small one.
    """

    name: str
    size: int | None
    sha256: str = ""
    git: str = ""


@dataclass(frozen=True, slots=True)
class Listing:
    """A repository at one commit: the files at its top level that have a plain name."""

    commit: str
    files: dict[str, Listed]


def read_listing(data: bytes, *, host: str) -> Listing:
    """The listing that the bytes spell; E_NETWORK when no hub would say that."""
    try:
        found = parse_object(data, most_pieces=_MOST_PIECES)
    except TooManyPieces:
        raise _too_many() from None
    except BadJson:
        raise not_a_hub(host, "its listing of the repository is no JSON object") from None
    commit, entries = found.get("sha"), found.get("siblings")
    if not isinstance(commit, str) or not COMMIT.fullmatch(commit):
        raise not_a_hub(host, "its listing of the repository names no commit")
    if not isinstance(entries, list):
        raise not_a_hub(host, "its listing of the repository names no files")
    if len(entries) > MOST_FILES:
        raise _too_many()
    files: dict[str, Listed] = {}
    for entry in entries:
        name = entry.get("rfilename") if isinstance(entry, dict) else None
        if isinstance(name, str) and name not in files and _is_plain(name):
            files[name] = _listed(name, entry)
    return Listing(commit, files)


def _is_plain(name: str) -> bool:
    """Whether this is a file at the top level, by a name that means nothing else."""
    if len(name) > LONGEST_NAME or "/" in name or name.startswith(".") or not name.isprintable():
        return False
    try:
        plain_name(name)
    except SourceError:
        return False
    return True


def _listed(name: str, entry: dict[str, Any]) -> Listed:
    large = entry.get("lfs")
    if not isinstance(large, dict):
        size = _size(name, entry.get("size"))
        return Listed(name, size, git=_digest(entry.get("blobId"), COMMIT))
    size = _size(name, large.get("size", entry.get("size")))
    return Listed(name, size, sha256=_digest(large.get("sha256"), SHA256))


def _digest(stated: Any, form: re.Pattern[str]) -> str:
    return stated if isinstance(stated, str) and form.fullmatch(stated) else ""


def _size(name: str, size: Any) -> int | None:
    whole = isinstance(size, int) and not isinstance(size, bool)
    if size is None or (whole and 0 <= size <= _LARGEST_SIZE):
        return size
    raise SourceError(
        "E_CORRUPT",
        f"the hub lists {clean(name, limit=100)} with a size of {clean(size, limit=40)}",
        hint="check HF_ENDPOINT; tell the owner of the repository",
        stage="fetch",
    )


def _too_many() -> SourceError:
    return SourceError(
        "E_LIMIT",
        f"the repository lists more than {MOST_FILES} files",
        hint="download the weights yourself and give their path",
        stage="fetch",
    )


# -- Which files of a repository an audit needs, and nothing beyond: its code only if trusted.

#: What an adapter reads beside the weights.
CONFIGS = ("config.json", "adapter_config.json", "generation_config.json")
TOKENIZERS = (
    "added_tokens.json",
    "merges.txt",
    "special_tokens_map.json",
    "spiece.model",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.bpe",
    "vocab.json",
    "vocab.txt",
)
#: The largest vocabularies take 40 MB; a larger file is left where it is.
LARGEST_BESIDE = 64 << 20
#: A name in the index takes about a hundred bytes.
LARGEST_INDEX = 16 << 20
_YOURSELF = "download the one you mean with `hf download`, and give its path"


@dataclass(frozen=True, slots=True)
class Choice:
    """The weight file or the index of its shards, and the other weights that were passed over."""

    weights: str
    others: tuple[str, ...]

    @property
    def is_index(self) -> bool:
        """Whether the weights are split over shards."""
        return self.weights.lower().endswith(INDEX)


def choose_weights(names: Collection[str]) -> Choice:
    """The weights among the files of a repository, by the rules for a folder on disk."""
    found, every = rank_weights(names)
    if len(found) == 1:
        return Choice(found[0], tuple(name for name in every if name != found[0]))
    if found:
        fact = f"the repository holds {len(found)} checkpoints: {_shown(found)}"
        raise SourceError("E_PATH", fact, hint=_YOURSELF, stage="fetch")
    only = f", only {_shown(sorted(names))}" if names else ", nor any other file at its top level"
    raise SourceError(
        "E_NOT_FOUND",
        f"the repository holds no weights that memaudit opens{only}",
        hint=f"expected a file ending in {', '.join(SUFFIXES)} at its top level",
        stage="fetch",
    )


def code_among(names: Collection[str]) -> tuple[str, ...]:
    """The Python files of a repository, which are fetched for those who trust them."""
    return tuple(sorted(name for name in names if name.endswith(".py")))


def shards_of(index: bytes) -> tuple[str, ...]:
    """The weight files that an index names.

    Everything else that it says, and an index that cannot be read, is left to whoever opens it.
    """
    try:
        weight_map = parse_object(index, most_pieces=LARGEST_INDEX // 16).get("weight_map")
    except (BadJson, TooManyPieces):
        return ()
    if not isinstance(weight_map, dict):
        return ()
    named = {name for name in weight_map.values() if isinstance(name, str)}
    return tuple(sorted(name for name in named if stem_and_suffix(name)[1] in SUFFIXES))


def _shown(names: Sequence[str]) -> str:
    return listed(names, limit=60)


# -- The hub's cache on this machine: where a commit lies, and whether anything of it is missing.

MAIN = "main"


@dataclass(frozen=True, slots=True)
class Cache:
    """The part of the cache that belongs to one repository.

    The layout is that of huggingface_hub: blobs/ has the contents, snapshots/COMMIT/ a link to
    each under its name, refs/REVISION the commit that a branch or tag last stood for.
    """

    root: Path
    name: str

    @property
    def folder(self) -> Path:
        """Where the repository lies."""
        return self.root / "--".join(("models", *self.name.split("/")))

    def snapshot(self, commit: str) -> Path:
        """Where the files of a commit lie."""
        return self.folder / "snapshots" / commit

    def files(self, commit: str) -> list[str]:
        """The files of a commit that are here as a whole."""
        try:
            with os.scandir(self.snapshot(commit)) as entries:
                return sorted(entry.name for entry in entries if entry.is_file())
        except OSError:
            return []

    def announced(self, commit: str, name: str) -> Listed:
        """What the cache remembers of the listing: large files are stored under their SHA-256."""
        try:
            blob = os.path.basename(os.readlink(self.snapshot(commit) / name))
        except OSError:  # no link
            blob = ""
        return Listed(name, None, sha256=blob if SHA256.fullmatch(blob) else "")

    def commit_of(self, revision: str | None) -> str | None:
        """The commit that a revision stood for when it was fetched."""
        if revision is not None and COMMIT.fullmatch(revision):
            return revision if self.snapshot(revision).is_dir() else None
        try:
            with self._ref(revision).open("rb") as stream:
                text = stream.read(100).decode("ascii", "replace").strip()
        except OSError:
            return None
        return text if COMMIT.fullmatch(text) else None

    def remember(self, revision: str | None, commit: str) -> None:
        """Note the commit of a branch or tag, once every file of it is here.

        A cache that cannot be written was good enough to read from: nothing is lost but the name.
        """
        path = self._ref(revision)
        if revision == commit or self.commit_of(revision) == commit:
            return
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=f"{path.name}.", suffix=".tmp", dir=path.parent)
            try:
                with os.fdopen(handle, "w", encoding="ascii") as stream:
                    stream.write(commit)
                os.chmod(name, 0o644)
                os.replace(name, path)
            except OSError:
                os.unlink(name)

    def require_space(self, size: int) -> None:
        """Raise E_DISK when a download would not fit."""
        place = next(p for p in (self.root, *self.root.parents) if p.exists())
        try:
            free = shutil.disk_usage(place).free
        except OSError:  # a file system that does not say: the download will
            return
        if size <= free:
            return
        raise MachineError(
            "E_DISK",
            f"the download takes {human_size(size)}, and {clean(self.root)} has room for "
            f"{human_size(free)}",
            hint="free some space, or choose another folder with HF_HOME",
            stage="fetch",
        )

    def growing(self) -> int:
        """The bytes of the largest download that is under way, whoever makes it."""
        largest = 0
        with contextlib.suppress(OSError), os.scandir(self.folder / "blobs") as entries:
            for entry in entries:
                if entry.name.endswith(".incomplete"):
                    with contextlib.suppress(OSError):
                        largest = max(largest, entry.stat().st_size)
        return largest

    def _ref(self, revision: str | None) -> Path:
        return self.folder / "refs" / (MAIN if revision is None else revision)


# -- Starts the process that talks to the hub, and ends it when it does not get on.

#: Bytes per time of patience that count as getting on; a drip does not.
STRIDE = 64 << 10
#: The interpreter and the hub's client start in half a second, on a busy machine in ten.
START = 60.0
#: Seconds for the child to remove what is half written.
GRACE = 5.0
_BOOT = (
    "import sys; sys.path[:] = sys.argv[1:]; from memaudit.loading.hub_child import main; main()"
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
        return _Follower(access).follow(events)


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


class _Follower:
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


# -- Fetching a repository from the hub, or from what the hub's client keeps on this machine.

LONGEST_REPOSITORY = 96


@dataclass(frozen=True, slots=True)
class Fetched:
    """The local copy of a repository at one commit; `notes` are sentences for the report."""

    folder: Path
    commit: str
    notes: tuple[str, ...] = ()


def fetch_repository(name: str, *, revision: str | None, access: Access) -> Fetched:
    """The files of a repository that an audit needs, from the cache or from the hub.

    A hub that gives no answer is excused by a complete copy in the cache, and the notes say so. One
    that says no, because the repository is gated or gone, is believed.
    """
    try:
        _check_name(name, revision)
        limit, code = access.limits.max_bytes, access.trust_remote_code
        return _fetch(Order(name, revision, limit, access.offline, code), access)
    except MemauditError as error:
        raise error.at(name if revision is None else f"{name}@{revision}") from None


def _fetch(order: Order, access: Access) -> Fetched:
    found = carry_out(order, access)
    if isinstance(found, Failure):
        if not found.unanswered:
            raise found.error
        cached = carry_out(replace(order, offline=True), access)
        if isinstance(cached, Failure):
            raise found.error
        fallback = f"the hub {found.unanswered}: the copy of commit {cached.commit} in the cache"
        return Fetched(cached.folder, cached.commit, (f"{fallback} was used",))
    where = "the cache, offline" if found.offline else "the hub"
    note = f"{order.name} at commit {found.commit} from {where}"
    return Fetched(found.folder, found.commit, (note, *found.notes))


def _check_name(name: str, revision: str | None) -> None:
    """Names and revisions become parts of paths and addresses."""
    if "--" in name or ".." in name or name.endswith(".git") or len(name) > LONGEST_REPOSITORY:
        raise SourceError(
            "E_NOT_FOUND",
            "no hub has a repository of that name",
            hint="check it; for a local file give its path",
            stage="fetch",
        )
    parts = () if revision is None else revision.split("/")
    if any(
        part.startswith(".") or part.endswith(".") or ".." in part or not part for part in parts
    ):
        fact = f"{clean(revision)!r} is no revision"
        raise ArgumentError(fact, hint="give a branch, a tag or a commit")
