"""Reading and writing report files: strict JSON, atomic replacement, a checked schema number."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from memaudit.errors import MachineError, SourceError, clean
from memaudit.results import SCHEMA

#: Temporary files of ours start like this; they live beside the target for an atomic rename.
TEMPORARY = ".memaudit-"


def dumps(data: dict[str, Any]) -> str:
    """Strict JSON: a NaN or an infinity is a bug here, and raises."""
    return json.dumps(data, indent=1, allow_nan=False, ensure_ascii=True) + "\n"


def write_text(text: str, path: str | Path) -> Path:
    """Write a whole file or nothing: temporary file beside it, fsync, rename."""
    target = Path(path)
    try:
        handle, name = tempfile.mkstemp(prefix=TEMPORARY, suffix=".tmp", dir=target.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            os.chmod(name, _mode(target))
            os.replace(name, target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise MachineError(
            "E_DISK",
            f"cannot write: {clean(error.strerror or error)}",
            hint="choose a folder that exists, is writable and has room",
            source=target,
            stage="write",
        ) from error
    return target


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
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise SourceError(
            "E_CORRUPT", f"not a JSON report: {clean(error)}", source=source, stage="read"
        ) from error
    if not isinstance(data, dict):
        raise SourceError("E_CORRUPT", "not a JSON report: no object at the top", source=source)
    return data


def check_schema(data: dict[str, Any]) -> None:
    """Refuse a report that this version cannot read."""
    schema = data.get("schema")
    if schema != SCHEMA:
        raise SourceError(
            "E_UNSUPPORTED",
            f"the report has schema {clean(schema)}, this memaudit reads schema {SCHEMA}",
            hint="write it again with this version",
        )


def corrupt(error: Exception) -> SourceError:
    """The error for a report whose fields are missing or of the wrong type."""
    fact = f"the report is damaged: {type(error).__name__} {clean(error)}"
    return SourceError("E_CORRUPT", fact, hint="write it again", stage="read")


def _mode(target: Path) -> int:
    """The rights of the file that is replaced, or those that a new file would get."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
