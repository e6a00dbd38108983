"""Reading and writing report files: strict JSON, atomic replacement, a checked schema number."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import IO, TYPE_CHECKING, Any

from memaudit import faults
from memaudit.errors import MachineError, SourceError, clean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Rises when a field of the JSON report changes its meaning or goes away.
SCHEMA = 2
#: What fields that are missing, of the wrong type or beyond all sizes raise.
WRONG = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)


def dumps(data: dict[str, Any]) -> str:
    """Strict JSON in ASCII: a NaN or an infinity is a bug here, and raises.

    Half of a surrogate pair, which strict readers refuse, becomes the replacement character.
    """
    text = json.dumps(data, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    plain = re.sub("[\x80-\U0010ffff]", lambda match: json.dumps(match[0])[1:-1], whole)
    return plain.replace("\x7f", "\\u007f")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an error of the disk into E_DISK, with the name of what was written."""
    try:
        yield
    except OSError as error:
        raise MachineError(
            "E_DISK",
            f"cannot write: {clean(error.strerror or error)}",
            hint="choose a place that exists, is writable and has room",
            source=path,
            stage="write",
        ) from error


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """The path of a temporary file or folder beside `target`, which it replaces at the end.

    The replacement is one step of the file system; when anything fails before, nothing stays.
    """
    temporary = target.with_name(f".memaudit-{token_hex(8)}.tmp")
    try:
        yield temporary
        os.replace(temporary, target)
        faults.step("write.replaced")
    finally:
        with suppress(OSError):
            if temporary.is_dir():
                shutil.rmtree(temporary)
            else:
                temporary.unlink()


def is_stream(path: Path) -> bool:
    """Whether a path leads to a terminal, a pipe or the like, which is written to, not replaced."""
    return path.is_char_device() or path.is_fifo()


def destination(path: Path) -> Path:
    """The file behind a path, which may be a link; OSError where it may not be written.

    A rename asks for no rights on the file that it replaces, and follows no link; so the file is
    opened first, which leaves the rules to the system.
    """
    if path.exists():
        if not path.is_file():
            raise OSError(errno.EINVAL, "not a regular file")
        with path.open("r+b"):
            pass
    return Path(os.path.realpath(path))


def write_text(text: str, path: str | Path) -> Path:
    """Write a whole file or nothing; a link stays, and the file that it leads to is replaced."""
    target = Path(path)
    if is_stream(target):
        with writing(target), _open(target) as stream:
            stream.write(text)
    else:
        write_texts({target: text})
    return target


def _open(path: Path) -> IO[str]:
    """A file for any text; line ends are those of the text, on every system."""
    return path.open("w", encoding="utf-8", errors="backslashreplace", newline="")


def write_texts(texts: Mapping[Path, str]) -> None:
    """Write several files, all or none: each is on the disk before the first is replaced."""
    with ExitStack() as stack:
        for path, text in texts.items():
            stack.enter_context(writing(path))
            target = destination(path)
            temporary = stack.enter_context(replacing(target))
            with _open(temporary) as file:
                faults.step("write.opened")
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            if target.exists():
                shutil.copymode(target, temporary)
            faults.step("write.flushed")


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


@contextmanager
def undamaged() -> Iterator[None]:
    """Turn what fields that are missing or of the wrong type raise into E_CORRUPT."""
    try:
        yield
    except WRONG as error:
        fact = f"the report is damaged: {type(error).__name__} {clean(error)}"
        raise SourceError("E_CORRUPT", fact, hint="write it again", stage="read") from error
