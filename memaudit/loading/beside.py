"""Small files beside the weights of a folder, such as a tokenizer: read whole, or not at all."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from memaudit.errors import SourceError, clean
from memaudit.loading.configs.config import CONFIG_NAME
from memaudit.loading.configs.config_text import LARGEST_CONFIG, parse_config
from memaudit.loading.disk.containment import open_within
from memaudit.loading.disk.regular_file import read_whole

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def read_beside(folder: Path, name: str, *, most: int) -> bytes | None:
    """The bytes of a file that lies in the folder itself; None when it is not there.

    Links that lead out of the folder are refused (E_PATH), files of more than `most` bytes too.
    """
    if not os.path.lexists(folder / name):
        return None
    with open_within(folder, name) as file:
        return read_whole(file, most=most)


def require_beside(folder: Path, names: Iterable[str], *, most: int) -> tuple[str, ...]:
    """Which of the files are there; each must lie in the folder itself and be small enough."""
    found = tuple(name for name in names if os.path.lexists(folder / name))
    for name in found:
        with open_within(folder, name) as file:
            if file.size > most:
                fact = f"{clean(name)} has {file.size} bytes, more than {most}"
                raise SourceError("E_LIMIT", fact, hint="look into it", stage="open")
    return found


def code_map(folder: Path) -> dict[str, str]:
    """What `auto_map` in the folder's config.json names: role → module.Class, as it stands there.

    Nothing is run or imported. The cleaned config of a checkpoint leaves this out on purpose.
    """
    data = read_beside(folder, CONFIG_NAME, most=LARGEST_CONFIG)
    if data is None:
        return {}
    stated: Any = parse_config(data, name=CONFIG_NAME).get("auto_map")
    if not isinstance(stated, dict):
        return {}
    return {role: name for role, name in stated.items() if isinstance(name, str)}
