"""Reading and writing report files: strict JSON, atomic replacement, a checked schema number."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from memaudit import faults
from memaudit.errors import MachineError, SourceError, clean

if TYPE_CHECKING:
    from collections.abc import Iterator

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

#: Rises when a field of the JSON report changes its meaning or goes away.
SCHEMA = 2
#: Temporary files of ours are called like this; they live beside the target for an atomic rename.
TEMPORARY, SUFFIX = ".memaudit-", ".tmp"
_OURS = re.compile(r"\.memaudit-[a-z0-9_]{8}\.tmp")
#: Where nothing can be locked, a temporary older than this has no writer any more.
STALE_SECONDS = 86_400.0
#: As many as Linux follows.
MOST_LINKS = 40
#: A sweeper may take a new temporary before it is locked; nobody is that unlucky often.
MOST_TRIALS = 20
#: What fields that are missing, of the wrong type or beyond all sizes raise.
WRONG = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
#: Folders cannot be synced everywhere.
_UNSYNCED = (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES)


def dumps(data: dict[str, Any]) -> str:
    """Strict JSON in ASCII: a NaN or an infinity is a bug here, and raises.

    Half of a surrogate pair, which strict readers refuse, becomes the replacement character.
    """
    text = json.dumps(data, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    plain = re.sub("[\x80-\U0010ffff]", lambda match: json.dumps(match[0])[1:-1], whole)
    return plain.replace("\x7f", "\\u007f")


def write_text(text: str, path: str | Path) -> Path:
    """Write a whole file or nothing: temporary file beside it, fsync, rename, fsync the folder."""
    target = Path(path)
    try:
        real = destination(target)
        with temporary(real.parent) as stream:
            faults.step("write.opened")
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
            faults.step("write.flushed")
            own = stream.fileno() if os.chmod in os.supports_fd else stream.name
            os.chmod(own, _mode(real))
            if fcntl is None:  # Windows renames no open file
                stream.close()
            os.replace(stream.name, real)
            faults.step("write.replaced")
            _sync(real.parent)
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the name
        fact = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise MachineError(
            "E_DISK",
            f"cannot write: {clean(fact)}",
            hint="choose a folder that exists, is writable and has room",
            source=target,
            stage="write",
        ) from error
    return target


def destination(path: Path) -> Path:
    """The file behind a path: a link stays a link, and the file that it leads to is replaced.

    A rename would replace what no rename may (a device, a file that is write-protected), and follow
    links that the system does not: those that a stranger put into a folder open to everybody.
    """
    for _ in range(MOST_LINKS):
        if not path.is_symlink():
            break
        if _planted(path):
            raise PermissionError(errno.EACCES, "the link belongs to somebody else")
        path = path.parent / os.readlink(path)
    else:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if path.exists():
        if not path.is_file():
            raise OSError(errno.EINVAL, "not a regular file")
        if not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, "the file that is there is write-protected")
    return path


@contextmanager
def temporary(folder: Path) -> Iterator[IO[str]]:
    """A new file in a folder, gone afterwards unless it was renamed; dead ones are swept first."""
    sweep(folder)
    stream = _locked_temporary(folder)
    try:
        yield stream
    finally:
        with suppress(OSError):
            if fcntl is None:
                stream.close()
            os.unlink(stream.name)
        with suppress(OSError):  # what could not be written cannot be written now, either
            stream.close()


def sweep(folder: Path) -> None:
    """Remove the temporaries of ours that nobody writes any more; whatever fails is left."""
    try:
        with os.scandir(folder) as entries:
            found = [e.name for e in entries if _OURS.fullmatch(e.name)]
    except OSError:
        return
    for name in found:
        with suppress(OSError):
            _remove_stale(folder / name)


def write_json(data: dict[str, Any], path: str | Path) -> Path:
    """Write a JSON report atomically."""
    return write_text(dumps(data), path)


def read_json(path: str | Path) -> dict[str, Any]:
    """Read a JSON report, or say why that file is none."""
    source = Path(path)
    try:
        data = json.loads(source.read_text(encoding="utf-8"))
    except OSError as error:
        fact = clean(error.strerror or error)
        raise SourceError("E_NOT_FOUND", f"cannot read: {fact}", source=source) from error
    except (ValueError, RecursionError) as error:
        raise SourceError(
            "E_CORRUPT", f"not a JSON report: {clean(error)}", source=source, stage="read"
        ) from error
    if not isinstance(data, dict):
        raise SourceError("E_CORRUPT", "not a JSON report: no object at the top", source=source)
    return data


def check_schema(data: dict[str, Any]) -> None:
    """Refuse a report that this version cannot read."""
    schema = data.get("schema")
    if schema is None:  # an index of shards, a config, results of another tool
        hint = "give the file that memaudit scan --json wrote"
        raise SourceError("E_UNSUPPORTED", "this is no memaudit report", hint=hint)
    if type(schema) is not int or schema != SCHEMA:  # True and 1.0 equal 1
        raise SourceError(
            "E_UNSUPPORTED",
            f"the report has schema {clean(schema)}, this memaudit reads schema {SCHEMA}",
            hint="write it again with this version",
        )


def corrupt(error: Exception) -> SourceError:
    """The error for a report whose fields are missing or of the wrong type."""
    fact = f"the report is damaged: {type(error).__name__} {clean(error)}"
    return SourceError("E_CORRUPT", fact, hint="write it again", stage="read")


@contextmanager
def undamaged() -> Iterator[None]:
    """Turn what goes wrong while a report is read into that error."""
    try:
        yield
    except WRONG as error:
        raise corrupt(error) from error


def _locked_temporary(folder: Path) -> IO[str]:
    """A temporary whose lock tells sweepers that it is alive."""
    for _ in range(MOST_TRIALS):
        stream = tempfile.NamedTemporaryFile(  # noqa: SIM115
            mode="w",
            encoding="utf-8",
            errors="backslashreplace",
            newline="",  # line ends are those of the text, on every system
            prefix=TEMPORARY,
            suffix=SUFFIX,
            dir=folder,
            delete=False,
        )
        try:
            alone = _lock(stream.fileno())
        except OSError:  # a file system without locks, where sweepers go by age
            return stream  # type: ignore[return-value]
        if alone and _is_at(stream.fileno(), stream.name):
            return stream  # type: ignore[return-value]
        stream.close()
        Path(stream.name).unlink(missing_ok=True)
    raise OSError(errno.EAGAIN, "another process removes the temporary files")


def _remove_stale(path: Path) -> None:
    status = path.lstat()
    mine = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
    if not stat.S_ISREG(status.st_mode) or not mine:
        return
    if fcntl is None:
        if _old(status):
            os.unlink(path)
        return
    handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if _abandoned(handle, status) and _is_at(handle, path):
            os.unlink(path)
    finally:
        os.close(handle)


def _abandoned(handle: int, status: os.stat_result) -> bool:
    try:
        return _lock(handle)
    except OSError:
        return _old(status)


def _old(status: os.stat_result) -> bool:
    return time.time() - status.st_mtime > STALE_SECONDS


def _lock(handle: int) -> bool:
    """Whether nobody else holds the file; OSError where nobody can hold one."""
    if fcntl is None:
        raise OSError(errno.ENOTSUP, "no locks here")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(handle: int, path: str | Path) -> bool:
    """Whether an open file still has that name."""
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except FileNotFoundError:
        return False


def _planted(link: Path) -> bool:
    """Whether a link is one that Linux would not follow (fs.protected_symlinks)."""
    if not hasattr(os, "geteuid"):
        return False
    owner, folder = link.lstat().st_uid, link.parent.stat()
    everybodys = stat.S_ISVTX | stat.S_IWOTH
    shared = folder.st_mode & everybodys == everybodys
    return shared and owner not in (os.geteuid(), folder.st_uid)


def _sync(folder: Path) -> None:
    """Make a rename last beyond a power cut, where the system can."""
    try:
        handle = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    except OSError:  # Windows, or a folder that may be written but not read
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _UNSYNCED:
            raise
    finally:
        os.close(handle)


def _mode(target: Path) -> int:
    """The rights of the file that is replaced, or those that a new file would get."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
