"""A regular file, opened without waiting and read by position, never mapped into memory."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memaudit.errors import MachineError, MemauditError, SourceError, clean

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOT_FOUND_HINT = "check the path; for the hub write org/name, for timm write timm:NAME"
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


@dataclass(frozen=True, slots=True)
class RegularFile:
    """An open file, and what it was like when it was opened."""

    path: Path
    handle: int
    stat: os.stat_result

    @property
    def size(self) -> int:
        """Its length in bytes."""
        return self.stat.st_size

    @property
    def marks(self) -> tuple[int, ...]:
        """Size, times, inode and device: what differs when somebody wrote to it."""
        return _marks(self.stat)

    def read(self, offset: int, length: int) -> bytes:
        """Exactly so many bytes from a position; a file that ends before that was changed."""
        found = self._some(offset, length)
        while 0 < len(found) < length:  # the system hands out at most 2 GB at once
            more = self._some(offset + len(found), length - len(found))
            if not more:
                break
            found += more
        if len(found) < length:
            raise changed_while_read()
        return found

    def require_unchanged(self) -> None:
        """Raise E_CHANGED when somebody wrote to the file since it was opened."""
        if _marks(os.fstat(self.handle)) != self.marks:
            raise changed_while_read()

    def _some(self, offset: int, length: int) -> bytes:
        try:
            if hasattr(os, "pread"):
                return os.pread(self.handle, length, offset)
            os.lseek(self.handle, offset, os.SEEK_SET)
            return os.read(self.handle, length)
        except OSError as error:
            raise reading_failed(error) from None
        except MemoryError:
            raise out_of_memory() from None


def kind_of(path: Path) -> str:
    """`file` or `folder`; everything else that a path may lead to is refused."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        raise reading_failed(error) from None
    if stat.S_ISDIR(mode):
        return "folder"
    require_regular(mode)
    return "file"


@contextmanager
def open_regular(path: Path) -> Iterator[RegularFile]:
    """Open a regular file for reading.

    A FIFO that took its place must not hang the audit, so nothing here waits; what was opened is
    judged, not what had that name before.
    """
    try:
        handle = os.open(path, _FLAGS)
    except (OSError, ValueError) as error:
        raise reading_failed(error) from None
    try:
        found = os.fstat(handle)
        require_regular(found.st_mode)
        yield RegularFile(path, handle, found)
    finally:
        os.close(handle)


def read_regular(path: Path, *, most: int | None = None) -> bytes:
    """Every byte of a small regular file; E_LIMIT when it has more than `most`."""
    with open_regular(path) as file:
        return read_whole(file, most=most)


def read_whole(file: RegularFile, *, most: int | None = None) -> bytes:
    """Every byte of a small file that is open; E_LIMIT when it has more than `most`."""
    if most is not None and file.size > most:
        raise SourceError(
            "E_LIMIT",
            f"{clean(file.path.name)} has {file.size} bytes, more than {most}",
            hint="a real one is far smaller; look into it",
            stage="open",
        )
    found = file.read(0, file.size)
    file.require_unchanged()
    return found


def require_regular(mode: int, *, name: str = "this") -> None:
    """Refuse FIFOs, sockets, devices and folders by their kind."""
    if stat.S_ISREG(mode):
        return
    tests = (
        (stat.S_ISFIFO, "a FIFO"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
        (stat.S_ISDIR, "a folder"),
    )
    what = next((kind for test, kind in tests if test(mode)), "something else")
    raise SourceError(
        "E_PATH",
        f"{clean(name)} is {what}, not a regular file",
        hint="give the checkpoint itself: a file, or the folder that holds it",
        stage="open",
    )


def reading_failed(error: OSError | ValueError) -> MemauditError:
    """The error in our words."""
    if isinstance(error, ValueError):
        return SourceError(
            "E_PATH", "the path holds a NUL byte", hint="check the path", stage="open"
        )
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return SourceError(
            "E_NOT_FOUND", "no such file or folder", hint=NOT_FOUND_HINT, stage="open"
        )
    if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
        return SourceError(
            "E_PATH", f"the path leads nowhere: {error.strerror}", hint="check it", stage="open"
        )
    if error.errno in (errno.ENXIO, errno.ENODEV):  # a socket, or a device without a driver
        hint = "give the checkpoint itself: a file, or the folder that holds it"
        return SourceError("E_PATH", "this is not a regular file", hint=hint, stage="open")
    if isinstance(error, PermissionError):
        return MachineError(
            "E_DISK",
            "reading is not permitted",
            hint="make the file readable, e.g. with chmod u+r",
            stage="open",
        )
    return MachineError(
        "E_DISK",
        f"reading failed: {error.strerror or type(error).__name__}",
        hint="check the path and the disk",
        stage="open",
    )


def changed_while_read() -> SourceError:
    """E_CHANGED, for bytes that were not those of one moment."""
    return SourceError(
        "E_CHANGED",
        "the file changed while it was read",
        hint="wait until whoever writes it is done, and open it again",
        stage="open",
    )


def out_of_memory() -> MachineError:
    """E_MEMORY, for a file that was not known to be too large."""
    return MachineError(
        "E_MEMORY",
        "the file does not fit into memory",
        hint="use a machine with more memory",
        stage="open",
    )


def _marks(found: os.stat_result) -> tuple[int, ...]:
    return (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev)
