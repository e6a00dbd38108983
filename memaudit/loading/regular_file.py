"""The bytes of one regular file, read once, so that what is hashed is what is loaded."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

from memaudit.errors import MachineError, MemauditError, SourceError

if TYPE_CHECKING:
    from pathlib import Path

NOT_FOUND_HINT = "check the path; for the hub write org/name, for timm write timm:NAME"


def kind_of(path: Path) -> str:
    """`file` or `folder`; everything else that a path may lead to is refused."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        raise _refusal(error) from None
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    raise _not_regular(mode)


def read_regular(path: Path) -> bytes:
    """Every byte of a regular file.

    Opened without blocking: a FIFO that takes the file's place must not hang the audit.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        handle = os.open(path, flags)
        with os.fdopen(handle, "rb") as stream:
            mode = os.fstat(handle).st_mode
            if not stat.S_ISREG(mode):
                raise _not_regular(mode)
            return stream.read()
    except (OSError, ValueError) as error:
        raise _refusal(error) from None
    except MemoryError:
        raise MachineError(
            "E_MEMORY",
            "the file does not fit into memory",
            hint="use a machine with more memory",
            stage="open",
        ) from None


def _not_regular(mode: int) -> SourceError:
    tests = (
        (stat.S_ISFIFO, "a FIFO"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
        (stat.S_ISDIR, "a folder"),
    )
    what = next((name for test, name in tests if test(mode)), "something else")
    return SourceError(
        "E_PATH",
        f"this is {what}, not a regular file",
        hint="give the checkpoint itself: a file, or the folder that holds it",
        stage="open",
    )


def _refusal(error: OSError | ValueError) -> MemauditError:
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
