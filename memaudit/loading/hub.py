"""Repositories of the hub, through huggingface_hub: what an audit needs of them, and no more."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from huggingface_hub import (
    HfApi,
    constants,
    hf_hub_url,
    logging,
    snapshot_download,
    try_to_load_from_cache,
)
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.hf_api import RepoSibling
from huggingface_hub.utils import (
    build_hf_headers,
    get_session,
    hf_raise_for_status,
    tqdm,
    validate_repo_id,
)

from memaudit import __version__, faults
from memaudit.errors import ArgumentError, MachineError, MemauditError, SourceError, clean, listed
from memaudit.loading.access import human_size, require_room
from memaudit.loading.configs import CONFIG_NAME
from memaudit.loading.files import INDEX, SUFFIXES, plain_name, rank_weights, stem_and_suffix

if TYPE_CHECKING:
    from memaudit.loading.access import Access
    from memaudit.loading.files import Stamp

#: What an adapter reads beside the weights.
BESIDE = (
    *("config.json", "adapter_config.json", "generation_config.json"),
    *("added_tokens.json", "merges.txt", "special_tokens_map.json", "spiece.model"),
    *("tokenizer.json", "tokenizer.model", "tokenizer_config.json"),
    *("vocab.bpe", "vocab.json", "vocab.txt"),
)
#: The library counts a download in chunks of 10 MB, which a slow line takes minutes for.
CHUNK = 1 << 18
AGAIN = "check the network and HF_ENDPOINT, or use --offline if a copy is in the cache"
WAIT = "try again, wait longer with --timeout SECONDS, or use --offline if a copy is in the cache"
LOG_IN = "log in with `hf auth login` or set HF_TOKEN"
ONLINE = "run it once without --offline and HF_HUB_OFFLINE"
ELSEWHERE = "or choose another folder with HF_HOME"


@dataclass(frozen=True, slots=True)
class Fetched:
    """The local copy of a repository at one commit; `notes` are sentences for the report."""

    folder: Path
    notes: tuple[str, ...]


def fetch_repository(name: str, *, revision: str | None, access: Access) -> Fetched:
    """The files of a repository that an audit needs, from the hub or from its client's cache.

    A hub that cannot be reached is excused by a complete copy in the cache, and the notes say so.
    One that says no, because the repository is gated or gone, is believed.
    """
    try:
        _check(name, revision)
        if access.offline or constants.HF_HUB_OFFLINE:
            folder = _cached(name, revision)
            return Fetched(folder, (f"{name} at commit {folder.name} from the cache, offline",))
        try:
            return _in_time(name, revision, access)
        except MachineError as error:
            if error.code != "E_NETWORK":
                raise
            try:
                folder = _cached(name, revision)
            except MemauditError:
                raise error from None
            used = f"the copy of commit {folder.name} in the cache was used"
            return Fetched(folder, (f"{error.fact}: {used}",))
    except MemauditError as error:
        raise error.at(name if revision is None else f"{name}@{revision}") from None


def require_announced(weights: Iterable[Stamp]) -> None:
    """Raise E_CORRUPT for weights that are not those that the hub announced.

    The cache names large files by their SHA-256, which the library compares for Xet only.
    """
    for file in weights:
        announced = os.path.basename(os.readlink(file.path)) if file.path.is_symlink() else ""
        if len(announced) == 64 and announced != file.sha256:
            raise SourceError(
                "E_CORRUPT",
                f"{clean(file.path.name)} is not what the hub announces: "
                f"its SHA-256 is {file.sha256}, not {clean(announced)}",
                hint=f"remove {clean(file.path)} and the file that it links to, and try again",
                stage="fetch",
            )


def _check(name: str, revision: str | None) -> None:
    try:
        validate_repo_id(name)
    except HFValidationError:
        hint = "check it; for a local file give its path"
        fact = "no hub has a repository of that name"
        raise SourceError("E_NOT_FOUND", fact, hint=hint, stage="fetch") from None
    if ".." in (revision or ""):  # becomes part of a path in the cache
        hint = "give a branch, a tag or a commit"
        raise ArgumentError(f"{clean(revision)!r} is no revision", hint=hint)


def _cached(name: str, revision: str | None) -> Path:
    """The copy of a revision in the cache; E_OFFLINE unless all weights are there."""
    try:
        # Without patterns it would miss the files that nobody needs.
        found = snapshot_download(name, revision=revision, allow_patterns=[], local_files_only=True)
    except LocalEntryNotFoundError:
        fact = f"it is not in the cache {clean(constants.HF_HUB_CACHE)}"
        raise MachineError("E_OFFLINE", fact, hint=ONLINE, stage="fetch") from None
    folder = Path(found)
    names = {path.name for path in folder.iterdir() if path.is_file()}
    weights = rank_weights(names)[0]
    missing = [shard for name in weights for shard in _shards(folder / name) if shard not in names]
    if missing or not weights:
        what = listed(missing, most=4, limit=80) or "the weights, such as model.safetensors"
        fact = f"the copy of commit {folder.name} in the cache lacks {what}"
        raise MachineError("E_OFFLINE", fact, hint=ONLINE, stage="fetch")
    return folder


def _in_time(name: str, revision: str | None, access: Access) -> Fetched:
    """Fetch in a thread, given up when nothing new comes for as long as the user has patience.

    The client's own timeouts are for single reads, and it tries again for minutes.
    """
    events: SimpleQueue[Any] = SimpleQueue()
    given_up = Event()

    def tell(event: Any) -> None:
        # An exception from outside could leave a lock of the interpreter's libraries held for ever.
        if given_up.is_set():
            raise SystemExit
        events.put(event)

    class Bar(tqdm):
        """Shows nothing and reports the bytes."""

        def __init__(self, *words: Any, **options: Any) -> None:
            super().__init__(*words, **{**options, "disable": True})
            tell(int(self.n))

        def update(self, n: float | None = 1) -> None:
            self.n += n or 0
            tell(int(self.n))

    def work() -> None:
        try:
            events.put(_fetch(name, revision, access, tell, Bar))
        except BaseException as error:
            events.put(error)

    # What belongs to the process is set and given back here: a thread that is given up ends later.
    verbosity, chunk = logging.get_verbosity(), constants.DOWNLOAD_CHUNK_SIZE
    constants.DOWNLOAD_CHUNK_SIZE = CHUNK
    logging.set_verbosity_error()  # the client tells of every attempt, in the hub's own words
    thread = Thread(target=work, daemon=True)
    thread.start()
    blobs = Path(constants.HF_HUB_CACHE, f"models--{name.replace('/', '--')}", "blobs")
    file, began, elsewhere = RepoSibling("the listing"), False, 0
    try:
        while True:
            try:
                event = events.get(timeout=access.seconds())
            except Empty:
                # Another process may be fetching the file, and this one wait until it has it.
                before, elsewhere = elsewhere, -1
                with contextlib.suppress(FileNotFoundError):  # it has just become complete
                    elsewhere = sum(part.stat().st_size for part in blobs.glob("*.incomplete"))
                if began or elsewhere == before:
                    why = f"gave no answer for {access.seconds():g} s"
                    raise _no_answer(why, hint=WAIT) from None
                continue
            match event:
                case RepoSibling():
                    file, began = event, False
                case int():
                    began = True
                    if event and file.size:
                        access.advance(f"downloading {clean(file.rfilename)}", event, file.size)
                case Fetched():
                    return event
                case _:
                    raise _explained(event, file.rfilename)
    except BaseException:
        # The thread ends at the next byte that it gets, and clears away what it has of the file; if
        # the process ends before that, it is cleared away here.
        given_up.set()
        if began:
            blob = file.lfs.sha256 if file.lfs else file.blob_id
            for part in blobs.glob(f"{blob}.*.incomplete"):
                part.unlink(missing_ok=True)
        raise
    finally:
        logging.set_verbosity(verbosity)
        constants.DOWNLOAD_CHUNK_SIZE = chunk


def _fetch(
    name: str,
    revision: str | None,
    access: Access,
    begin: Callable[[RepoSibling], None],
    bar: type[tqdm],
) -> Fetched:
    """The configs, the tokenizer, trusted code and the weights of a revision."""
    api = HfApi(library_name="memaudit", library_version=__version__)
    # The caller's patience ends first; this is for the thread, which must not wait forever.
    info = api.model_info(
        name, revision=revision, files_metadata=True, timeout=access.seconds() + 5
    )
    sha, files = info.sha, {f.rfilename: f for f in info.siblings or () if "/" not in f.rfilename}
    weights, others = _choose(files)
    code = [n for n in files if n.endswith(".py")] if access.trust_remote_code else []

    def fetch(names: Iterable[str]) -> Path:
        wanted = [files[n] for n in names if n in files]
        missing = [f for f in wanted if not try_to_load_from_cache(name, f.rfilename, revision=sha)]
        require_room(sum(f.size or 0 for f in wanted), access)
        _require_space(sum(f.size or 0 for f in missing))
        path = Path()
        for file in wanted:
            begin(file)
            faults.step("hub.fetch")
            path = Path(api.hf_hub_download(name, file.rfilename, revision=sha, tqdm_class=bar))
        return path

    path = fetch([*BESIDE, *code, weights])
    if shards := _shards(path):
        fetch(shards)
    folder = path.parent
    if revision != sha:
        _remember(folder, revision or constants.DEFAULT_REVISION)
    notes = [f"{name} at commit {sha} from the hub"]
    if others:
        notes.append(f"{clean(weights)} was fetched; not {listed(others, limit=60)}")
    return Fetched(folder, tuple(notes))


def _choose(names: Collection[str]) -> tuple[str, list[str]]:
    """The weights or the index of their shards, as in a folder on disk, and the other weights."""
    found, every = rank_weights(names)
    if len(found) == 1:
        return found[0], [name for name in every if name != found[0]]
    if found:
        fact = f"the repository holds {len(found)} checkpoints: {listed(found, limit=60)}"
        hint = "download the one you mean with `hf download`, and give its path"
        raise SourceError("E_PATH", fact, hint=hint, stage="fetch")
    shown = listed(sorted(names), limit=60)
    only = f", only {shown}" if names else ", nor any other file at its top level"
    raise SourceError(
        "E_NOT_FOUND",
        f"the repository holds no weights that memaudit opens{only}",
        hint=f"expected a file ending in {', '.join(SUFFIXES)} at its top level",
        stage="fetch",
    )


def _shards(path: Path) -> list[str]:
    """The weight files that an index names; what is wrong with it is said by who opens it."""
    if not path.name.lower().endswith(INDEX):
        return []
    try:
        named = json.loads(path.read_bytes())["weight_map"].values()
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return []
    names = {name for name in named if isinstance(name, str)}
    return sorted(name for name in names if stem_and_suffix(name)[1] in SUFFIXES)


def _require_space(size: int) -> None:
    """Raise E_DISK when a download would not fit."""
    cache = Path(constants.HF_HUB_CACHE)
    free = shutil.disk_usage(next(p for p in (cache, *cache.parents) if p.exists())).free
    if size > free:
        need = f"the download takes {human_size(size)}"
        fact = f"{need}, and {clean(cache)} has room for {human_size(free)}"
        raise MachineError("E_DISK", fact, hint=f"free some space, {ELSEWHERE}", stage="fetch")


def _remember(folder: Path, revision: str) -> None:
    """Note what commit a branch or tag stands for, which its files were not asked for by name."""
    ref = folder.parents[1] / "refs" / revision
    with contextlib.suppress(OSError):  # a cache that can only be read is good enough to audit
        ref.parent.mkdir(parents=True, exist_ok=True)
        ref.write_text(folder.name, encoding="ascii")


# -- A few tensors of a repository, by byte ranges.

#: Bytes of a shard that are asked for first: the headers of most fit in.
FIRST = 1 << 17
#: Statuses of a hub that may answer a moment later, and how long it is waited for.
BUSY, PATIENCE = (429, 500, 502, 503, 504), (0.5, 2.0)
#: Bytes a second below which a hub is given up.
SLOWEST = 1 << 12
#: Tensors that lie so near each other are fetched together.
NEAR = 1 << 14
WHOLE = "download it with `hf download` and give the folder"


class Ranges:
    """The safetensors files of one commit as files with holes: only what is fetched is in them."""

    def __init__(self, name: str, revision: str | None, access: Access) -> None:
        self._name, self._access = name, access
        self._complete: set[str] = set()
        #: Bytes that the hub was asked for.
        self.asked = 0
        self.folder = Path(tempfile.mkdtemp(prefix="memaudit-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        api = HfApi(library_name="memaudit", library_version=__version__)
        info = api.model_info(
            name, revision=revision, files_metadata=True, timeout=access.seconds()
        )
        self.commit = str(info.sha)
        self._files = {f.rfilename: f for f in info.siblings or () if "/" not in f.rfilename}
        weights, _ = _choose(self._files)
        for small in (weights if weights.lower().endswith(INDEX) else "", CONFIG_NAME):
            if small in self._files:
                self._open(small, most=access.limits.max_header)
                self._read(small, 0, self._size(small))
        shards = _shards(self.folder / weights) or [weights]
        if not all(shard.endswith(".safetensors") for shard in shards):
            fact = f"{clean(shards[0])} is no safetensors file, whose tensors lie at known places"
            raise SourceError("E_UNSUPPORTED", fact, hint=WHOLE, stage="fetch")
        #: Tensor → its shard and where its bytes begin and end.
        self._places: dict[str, tuple[str, int, int]] = {}
        for number, shard in enumerate(shards):
            access.advance("reading headers", number, len(shards))
            if shard in self._files:  # of one that is missing the index tells when it is opened
                self._places |= self._header(shard)
        access.advance("reading headers", len(shards), len(shards))

    def fetch(self, names: Iterable[str]) -> None:
        """Fetch the bytes of some tensors; those that lie close together at once."""
        spans: list[tuple[str, int, int]] = []
        for shard, start, stop in sorted(self._places[name] for name in names):
            if spans and spans[-1][0] == shard and start - spans[-1][2] <= NEAR:
                spans[-1] = (shard, spans[-1][1], max(stop, spans[-1][2]))
            else:
                spans.append((shard, start, stop))
        try:
            for number, span in enumerate(spans):
                self._access.advance("reading weights", number, len(spans))
                self._read(*span)
        except Exception as error:
            raise _explained(error, "the weights").at(self._name) from None
        self._access.advance("reading weights", len(spans), len(spans))

    def _size(self, name: str) -> int:
        size = self._files[name].size
        if not isinstance(size, int) or size < 0:
            raise _no_answer(f"does not tell how large {clean(name)} is")
        return size

    def _open(self, name: str, *, most: int | None = None) -> None:
        """A file of holes in its size."""
        size = self._size(name)
        if most is not None and size > most:
            fact = f"{clean(name)} has {human_size(size)}, more than {human_size(most)}"
            raise SourceError("E_LIMIT", fact, hint="is this a model?", stage="fetch")
        with open(self.folder / plain_name(name), "wb") as file:
            file.truncate(size)

    def _header(self, shard: str) -> dict[str, tuple[str, int, int]]:
        """Where the tensors of a shard are; who opens the file judges its header."""
        self._open(shard)
        size = self._size(shard)
        self._read(shard, 0, min(FIRST, size))
        with open(self.folder / shard, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > min(self._access.limits.max_header, size - 8):
                return {}
            if 8 + length > FIRST:
                self._read(shard, FIRST, 8 + length)
            file.seek(8)
            try:
                header = json.loads(file.read(length))
                spans = {n: e["data_offsets"] for n, e in header.items() if n != "__metadata__"}
                return {n: (shard, 8 + length + a, 8 + length + b) for n, (a, b) in spans.items()}
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
                return {}

    def _read(self, name: str, start: int, stop: int) -> None:
        """Write these bytes of a file where they belong; a busy hub is asked again."""
        for patience in (*PATIENCE, None):
            try:
                return self._ask(name, start, stop)
            except HfHubHTTPError as error:
                if patience is None or error.response.status_code not in BUSY:
                    raise
                time.sleep(min(patience, self._access.seconds() / 10))

    def _ask(self, name: str, start: int, stop: int) -> None:
        if start >= stop or name in self._complete:
            return
        url = hf_hub_url(self._name, name, revision=self.commit)
        headers = build_hf_headers(library_name="memaudit", library_version=__version__)
        whole = (start, stop) == (0, self._size(name))
        headers["Range"] = f"bytes={start}-{stop - 1}"
        self.asked += stop - start
        patience = self._access.seconds()
        end = time.monotonic() + patience + (stop - start) / SLOWEST
        options = {"headers": headers, "timeout": patience, "follow_redirects": True}
        with get_session().stream("GET", url, **options) as answer:
            hf_raise_for_status(answer)
            place = answer.headers.get("Content-Range", "")
            part = answer.status_code == 206 and place.startswith(f"bytes {start}-{stop - 1}/")
            if not part and not (whole and answer.status_code == 200):
                fact = "the hub does not serve parts of files"
                raise SourceError("E_UNSUPPORTED", fact, hint=WHOLE, stage="fetch")
            left = stop - start
            with open(self.folder / name, "r+b") as file:
                file.seek(start)
                for piece in answer.iter_bytes():
                    file.write(piece[:left])
                    left -= len(piece)
                    if time.monotonic() > end:
                        raise _no_answer(f"sends {clean(name)} too slowly", hint=WAIT)
                    if left < 0:
                        break
            if left:
                raise _no_answer(f"sent fewer or more bytes of {clean(name)} than announced")
        if whole:
            self._complete.add(name)


def open_ranges(name: str, revision: str | None, access: Access) -> Ranges | Path:
    """The headers of a repository, or the copy in the cache where there is no network."""
    try:
        _check(name, revision)
        if access.offline or constants.HF_HUB_OFFLINE:
            return _cached(name, revision)
        try:
            return Ranges(name, revision, access)
        except Exception as error:
            told = _explained(error, "the weights")
            if told.code not in ("E_NETWORK", "E_UNSUPPORTED"):
                raise told from None
            try:
                return _cached(name, revision)
            except MemauditError:
                raise told from None
    except MemauditError as error:
        raise error.at(name if revision is None else f"{name}@{revision}") from None


# -- What went wrong, from the classes of errors: their texts are the hub's and may hold anything.

#: By the names of classes: the library is built upon httpx or httpx2.
_NETWORK = {
    "ConnectionRefusedError": "refused the connection",
    "gaierror": "cannot be found: its name has no address",
    "SSLError": "could not prove who it is (TLS)",
    "ConnectError": "cannot be reached",
    "TimeoutException": "gave no answer in time",
    "ReadError": "ended the connection early",
    "RemoteProtocolError": "ended the connection early",
}


def _explained(error: BaseException, file: str) -> MemauditError:
    """The error in our words; the library wraps what happened in what it could not do."""
    if isinstance(error, MemauditError):
        return error
    if isinstance(error, OSError) and error.errno is not None:  # those of sockets come wrapped
        return _disk(error)
    if type(error) is OSError:  # the library compared the sizes
        return _no_answer(f"sent fewer or more bytes of {clean(file)} than announced")
    chain = [error]
    while cause := chain[-1].__cause__ or chain[-1].__context__:
        chain.append(cause)
    for cause in reversed(chain):
        if isinstance(cause, HfHubHTTPError):
            return _refused(cause)
        for kind in type(cause).__mro__:
            if kind.__name__ in _NETWORK:
                return _no_answer(_NETWORK[kind.__name__])
    return _no_answer(f"does not answer as a hub ({clean(type(error).__name__)})")


def _refused(error: HfHubHTTPError) -> MemauditError:
    """What a status means."""
    status, request = error.response.status_code, error.response.request
    code, host = "E_GATED", urlsplit(str(request.url)).netloc.rpartition("@")[2]
    if isinstance(error, GatedRepoError):
        fact = "the repository is gated, and you are not on its list"
        hint = f"accept the terms on its page, then {LOG_IN}"
    elif isinstance(error, RevisionNotFoundError):
        code, fact = "E_NOT_FOUND", "the repository has no such revision"
        hint = "give a branch, a tag or a commit"
    elif isinstance(error, RepositoryNotFoundError) or status == 404:
        code, fact = "E_NOT_FOUND", "the hub has no such repository, revision or file"
        hint = "check the name; a private one needs HF_TOKEN"
    elif host != _host() or status not in (401, 403):  # nobody logs in where large files are stored
        wait = error.response.headers.get("retry-after", "")
        later = f" and asks to wait {clean(wait)} s" if wait.isdecimal() else ""
        return _no_answer(f"answered {status}{later}", host=host)
    elif status == 403:
        fact = "the hub does not let you read it"
        hint = f"accept the terms on its page, if there are any, and {LOG_IN}"
    elif "authorization" in request.headers:
        fact, hint = "the hub refused the token that it was sent", f"{LOG_IN} anew"
    else:
        fact, hint = "the hub asks for a login", LOG_IN
    return SourceError(code, fact, hint=hint, stage="fetch")


def _host() -> str:
    """The hub's name without a password."""
    return urlsplit(constants.ENDPOINT).netloc.rpartition("@")[2]


def _no_answer(why: str, *, host: str = "", hint: str = AGAIN) -> MachineError:
    fact = f"the hub at {clean(host or _host())} {why}"
    return MachineError("E_NETWORK", fact, hint=hint, stage="fetch")


def _disk(error: OSError) -> MachineError:
    """Writing into the cache failed."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    fact = f"the cache {clean(constants.HF_HUB_CACHE)} cannot be used: {clean(error.strerror)}"
    if full:
        fact = f"the disk that holds {clean(constants.HF_HUB_CACHE)} is full"
    hint = "free some space" if full else "check its permissions"
    return MachineError("E_DISK", fact, hint=f"{hint}, {ELSEWHERE}", stage="fetch")
