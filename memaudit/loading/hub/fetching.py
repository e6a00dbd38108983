"""Fetching a repository from the hub, or from what the hub's client keeps on this machine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memaudit.errors import ArgumentError, MemauditError, SourceError, clean
from memaudit.loading.hub.errors import Failure
from memaudit.loading.hub.watch import Order, carry_out

if TYPE_CHECKING:
    from pathlib import Path

    from memaudit.loading.access import Access

LONGEST_NAME = 96


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
        _check(name, revision)
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


def _check(name: str, revision: str | None) -> None:
    """Names and revisions become parts of paths and addresses."""
    if "--" in name or ".." in name or name.endswith(".git") or len(name) > LONGEST_NAME:
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
