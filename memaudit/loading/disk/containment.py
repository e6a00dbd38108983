"""Files that a folder offers must lie in that folder, whatever links lead to them."""

from __future__ import annotations

import os
import re
import unicodedata
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from memaudit.errors import SourceError, clean
from memaudit.loading.disk.regular_file import (
    RegularFile,
    open_regular,
    reading_failed,
    require_regular,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST_NAME = 255
_DRIVE = re.compile(r"[A-Za-z]:")
#: Control characters, invisible formatting (bidi overrides), and bytes that are no text.
_UNPRINTABLE = ("Cc", "Cf", "Cs")
#: …/models--org--name/snapshots/<revision>, the folder that the hub's client hands out.
_SNAPSHOT = re.compile(r"(?P<cache>.*)/(?P<repo>models--[^/]+)/snapshots/[^/]+(?:/.*)?", re.DOTALL)
#: Where that client puts what several repositories share, beneath a folder with this marker.
_SHARED_BLOB = re.compile(r"(?P<start>[0-9a-f]{2})/(?P=start)[0-9a-f]{62}")
_SHARED_MARKER = ".huggingface-shared-blobs"
#: Where Linux shows what a process has open.
_HANDLES = "/proc/self/fd"
_OWN_HINT = "give the file itself instead of the folder, or put a copy in its place"


def within(folder: Path, name: str) -> Path:
    """The path of a regular file that lies in a folder, from its plain name.

    Raises E_PATH when the name is no plain name, when a symbolic or hard link leads out of the
    folder, or when this is no regular file; E_NOT_FOUND when nothing is there. The links by which
    the hub's client stores a repository's files are followed.
    """
    path = folder / plain_name(name)
    _contained(folder, path)
    return path


@contextmanager
def open_within(folder: Path, name: str, *, below: str = "") -> Iterator[RegularFile]:
    """Open what `within` allows; `below` is the plain name of a folder in between.

    What was opened is compared with what was allowed, not the name that leads there: a file that
    is exchanged for a link in between is seen. Where the system tells the place of an open file,
    that is judged as well, whatever was exchanged on the way and put back again.
    """
    path = (folder / plain_name(below) if below else folder) / plain_name(name)
    _contained(folder, path)
    root = _opened_folder(folder)
    with open_regular(path) as file:
        if not os.path.samestat(file.stat, _contained(folder, path)):
            raise SourceError(
                "E_CHANGED",
                f"{clean(name)} was exchanged while it was opened",
                hint="let nobody write into the folder, and open it again",
                stage="open",
            )
        if root:
            real = _opened_place(file.handle)
            _require_inside(path.name, root=root, real=real, found=file.stat)
        yield file


def plain_name(name: str) -> str:
    """The name, unless it could mean anything but one entry of a folder, on any system."""
    odd = [c for c in name if unicodedata.category(c) in _UNPRINTABLE]
    bad = odd or "/" in name or "\\" in name or _DRIVE.match(name) or name in ("", ".", "..")
    if bad or len(os.fsencode(name)) > LONGEST_NAME:
        raise SourceError(
            "E_PATH",
            f"{clean(name, limit=120)!r} is not the plain name of a file in the folder",
            hint="files must lie in the folder itself; give the weight file by its path",
            stage="open",
        )
    return name


def _contained(folder: Path, path: Path) -> os.stat_result:
    """What the path really leads to, once it is known to lie in the folder."""
    try:
        root, real = (os.path.realpath(p, strict=True) for p in (folder, path))
        found = os.lstat(real)
    except FileNotFoundError:
        link = path.is_symlink()
        fact = "is a link to a file that is not there" if link else "is not in the folder"
        raise SourceError(
            "E_NOT_FOUND",
            f"{clean(path.name)} {fact}",
            hint="if it was downloaded, the download is not complete: fetch it again",
            stage="open",
        ) from None
    except (OSError, ValueError) as error:
        raise reading_failed(error) from None
    require_regular(found.st_mode, name=path.name)
    _require_inside(path.name, root=root, real=real, found=found)
    return found


def _opened_folder(folder: Path) -> str:
    """Where a folder is, by the system's own word; empty on a system that does not say."""
    if not os.path.isdir(_HANDLES):
        return ""
    try:
        handle = os.open(folder, getattr(os, "O_PATH", os.O_RDONLY))
    except OSError as error:
        raise reading_failed(error) from None
    try:
        return _opened_place(handle)
    finally:
        os.close(handle)


def _opened_place(handle: int) -> str:
    """The path of what is open, by the system's own word; empty where it does not say."""
    try:
        return os.readlink(f"{_HANDLES}/{handle}")
    except OSError:
        return ""


def _require_inside(name: str, *, root: str, real: str, found: os.stat_result) -> None:
    snapshot = _SNAPSHOT.fullmatch(Path(root).as_posix())
    if not _beneath(real, root) and not (snapshot and _is_blob(Path(real), snapshot)):
        raise _outside(name, "leads outside the folder")
    if found.st_nlink > 1 and not snapshot:
        raise _outside(name, "has a second hard link, which may lie outside the folder")


def _beneath(real: str, root: str) -> bool:
    try:
        return os.path.commonpath([real, root]) == root
    except ValueError:  # two drives
        return False


def _is_blob(real: Path, snapshot: re.Match[str]) -> bool:
    """Whether a file is where the hub's client stores the contents of a snapshot."""
    own = Path(snapshot["cache"] or "/", snapshot["repo"], "blobs")
    if real.parent == own:
        return True
    shared = Path(snapshot["cache"] or "/", "blobs")
    inside = real.relative_to(shared).as_posix() if real.is_relative_to(shared) else ""
    return bool(_SHARED_BLOB.fullmatch(inside)) and (shared / _SHARED_MARKER).is_file()


def _outside(name: str, fact: str) -> SourceError:
    return SourceError("E_PATH", f"{clean(name)} {fact}", hint=_OWN_HINT, stage="open")
