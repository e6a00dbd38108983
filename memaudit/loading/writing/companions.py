"""The small files that go with a checkpoint wherever it goes: configs, tokenizers, texts."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from memaudit.loading.beside import read_beside
from memaudit.loading.configs.config import ADAPTER_NAME
from memaudit.loading.disk.containment import open_within
from memaudit.loading.disk.folder import INDEX
from memaudit.loading.disk.regular_file import kind_of, read_whole
from memaudit.loading.retrofit_files import RECORD_NAME
from memaudit.loading.writing.failing import writing

if TYPE_CHECKING:
    from pathlib import Path

    from memaudit.loading.checkpoint import Checkpoint

SUFFIXES = (".json", ".txt", ".model", ".jinja", ".yaml", ".yml", ".md")
#: The tokenizers of large vocabularies have some thirty megabytes.
LARGEST = 256 << 20


def copy_companions(checkpoint: Checkpoint, out: Path) -> None:
    """Copy what lies beside the weights, byte for byte; beside a single file, its config only.

    No code and no weights are copied. Links that lead out of the folder are refused.
    """
    copied: set[str] = set()
    if kind_of(checkpoint.path) == "folder":
        for name in sorted(os.listdir(checkpoint.path)):
            if _goes_along(name) and not (checkpoint.path / name).is_dir():
                data = read_beside(checkpoint.path, name, most=LARGEST)
                _write(out / name, data or b"")
                copied.add(name)
    config = checkpoint.config_path
    if config is not None and config.name not in copied:
        _copy_config(checkpoint, config, out)


def _copy_config(checkpoint: Checkpoint, config: Path, out: Path) -> None:
    """The config that counts, which may lie in a folder of its own."""
    root = checkpoint.path if kind_of(checkpoint.path) == "folder" else checkpoint.path.parent
    below = config.parent.name if config.parent != root else ""
    with open_within(root, config.name, below=below) as file:
        data = read_whole(file, most=LARGEST)
    _write(out / below / config.name, data)


def _goes_along(name: str) -> bool:
    low = name.lower()
    if low.endswith(INDEX) or low in (RECORD_NAME, ADAPTER_NAME):
        return False
    return low.endswith(SUFFIXES)


def _write(path: Path, data: bytes) -> None:
    with writing(path):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
