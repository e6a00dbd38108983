"""What the user pointed at, parsed once: a path, a demo, a hub id, a timm name, a module."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memaudit.catalog import DEMOS
from memaudit.errors import ArgumentError, SourceError, clean, nearest

if TYPE_CHECKING:
    from memaudit.loading.checkpoint import Checkpoint

HUB_ID = re.compile(r"^[\w][\w.-]*/[\w][\w.-]*(@[\w./-]+)?$")
#: A missing name with one of these endings was meant as a file, not as a hub id.
FILE_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".safetensors", ".npz", ".json", ".msgpack")
TIMM_PREFIXES = ("timm:", "hf-hub:", "local-dir:")
DEMO_FOLDER = Path(__file__).resolve().parent.parent / "demos"


@dataclass(frozen=True)
class Source:
    """Something to audit: `kind` is path, demo, hub, timm or module."""

    kind: str
    text: str
    path: Path | None = None
    module: Any = None

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The tensors behind a path or a demo, opened safely and only once."""
        from memaudit.loading.checkpoint import open_checkpoint

        if self.path is None:
            raise SourceError("E_UNSUPPORTED", "there is no local file here", source=self.text)
        return open_checkpoint(self.path)


def parse_source(source: Any) -> Source:
    """Decide what a source is; a path and a hub id are never guessed between silently."""
    if not isinstance(source, str | Path):
        if not callable(source):
            raise ArgumentError(
                f"a source is a string, a path or a module, not {type(source).__name__}",
                hint="for a function use memaudit.wrap(function, input_size=...)",
            )
        return Source("module", type(source).__name__, module=source)
    text = str(source)
    if not text.strip():
        raise ArgumentError("the source is empty", hint="give a path, or . for this folder")
    if text.startswith("demo:"):
        return _demo(text)
    if text.startswith(TIMM_PREFIXES):
        return Source("timm", text)
    path = _expanded(text)
    if isinstance(source, Path) or _on_disk(path):
        return _existing(path, text)
    if HUB_ID.match(text) and path.suffix.lower() not in FILE_SUFFIXES:
        return Source("hub", text)
    return _existing(path, text)


def _demo(text: str) -> Source:
    name = text.removeprefix("demo:")
    if name not in DEMOS:
        raise ArgumentError(f"unknown demo {clean(name)!r}", hint=nearest(name, DEMOS))
    return Source("demo", text, path=DEMO_FOLDER / f"{name}.safetensors")


def _existing(path: Path, text: str) -> Source:
    if not _on_disk(path):
        raise SourceError(
            "E_NOT_FOUND",
            "no such file or folder",
            hint="check the path; for the hub write org/name, for timm write timm:NAME",
            source=text,
            stage="open",
        )
    return Source("path", text, path=path)


def _expanded(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:  # ~somebody who is unknown here: a file of that name, or none
        return Path(text)


def _on_disk(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name too long, or with a NUL byte
        return False
