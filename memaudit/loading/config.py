"""The config.json of a checkpoint, as plain data."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from memaudit.errors import SourceError
from memaudit.loading.regular_file import read_regular

if TYPE_CHECKING:
    from pathlib import Path

CONFIG_NAME = "config.json"
LARGEST_CONFIG = 16 << 20


def find_config(folder: Path) -> Path | None:
    """The folder's config.json, if there is one."""
    path = folder / CONFIG_NAME
    return path if path.exists() else None


def read_config(path: Path) -> dict[str, Any]:
    """The JSON object in a config file; a byte-order mark is forgiven."""
    data = read_regular(path)
    if len(data) > LARGEST_CONFIG:
        raise _refusal(path, f"has {len(data)} bytes, more than {LARGEST_CONFIG}")
    try:
        config = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise _refusal(path, "is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise _refusal(path, f"is not JSON (line {error.lineno}: {error.msg})") from None
    except ValueError:  # Python refuses integers of more than 4300 digits
        raise _refusal(path, "holds a number with thousands of digits") from None
    except RecursionError:
        raise _refusal(path, "is nested too deeply") from None
    if not isinstance(config, dict):
        raise _refusal(path, f"holds a {type(config).__name__}, not an object")
    return config


def _refusal(path: Path, fact: str) -> SourceError:
    return SourceError(
        "E_CONFIG",
        f"{path.name} {fact}",
        hint="mend the file, or move it away to open the weights without it",
        stage="open",
    )
