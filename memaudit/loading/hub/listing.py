"""The hub's listing of a repository: a stranger's JSON, read as plain data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from memaudit.errors import SourceError, clean
from memaudit.loading.disk.containment import LONGEST_NAME, plain_name
from memaudit.loading.formats.strict_json import BadJson, TooManyPieces, parse_object
from memaudit.loading.hub.errors import not_a_hub

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
        said = parse_object(data, most_pieces=_MOST_PIECES)
    except TooManyPieces:
        raise _too_many() from None
    except BadJson:
        raise not_a_hub(host, "its listing of the repository is no JSON object") from None
    commit, entries = said.get("sha"), said.get("siblings")
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


def _digest(said: Any, form: re.Pattern[str]) -> str:
    return said if isinstance(said, str) and form.fullmatch(said) else ""


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
