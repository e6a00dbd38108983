"""From a listing to files: what is fetched, in which order, and what is checked."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from memaudit import faults
from memaudit.errors import MachineError, SourceError, clean
from memaudit.loading.access import Access, Limits
from memaudit.loading.disk.budget import require_room
from memaudit.loading.disk.machine_memory import available_memory
from memaudit.loading.disk.regular_file import read_regular
from memaudit.loading.hub.choice import (
    CONFIGS,
    LARGEST_BESIDE,
    LARGEST_INDEX,
    TOKENIZERS,
    choose_weights,
    code_among,
    shards_of,
)
from memaudit.loading.hub.errors import differs, not_a_hub
from memaudit.loading.hub.listing import COMMIT, Listed, read_listing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from memaudit.loading.hub.cache import Cache
    from memaudit.loading.hub.listing import Listing
    from memaudit.loading.hub.meter import Meter
    from memaudit.loading.hub.wire import Wire

_BLOCK = 1 << 20
_ONLINE = "run it once without --offline and HF_HUB_OFFLINE"


def from_cache(order: dict[str, Any], cache: Cache, meter: Meter) -> dict[str, Any]:
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


def _require_content(path: Path, file: Listed, meter: Meter) -> None:
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
