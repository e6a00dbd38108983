"""Checkpoints of which only a few tensors are read: mapped files, or byte ranges of the hub's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from memaudit.errors import SourceError
from memaudit.loading.access import human_size
from memaudit.loading.checkpoint import Checkpoint, open_checkpoint
from memaudit.loading.filling import digest_tensors

if TYPE_CHECKING:
    from memaudit.loading.gguf_files import GgufTensors
    from memaudit.loading.hub import Ranges
    from memaudit.loading.source import Source


@dataclass
class StoredWeights:
    """The names, shapes and dtypes of a checkpoint, and the numbers of the tensors asked for.

    `tensors` of a repository hold no numbers but those that were `read`.
    """

    source: Source
    ranges: Ranges | None = None
    seen: dict[str, torch.Tensor] = field(default_factory=dict)

    @cached_property
    def gguf(self) -> GgufTensors | None:
        """The tensors of a GGUF file, None for other formats."""
        from memaudit.loading.gguf_files import is_gguf, open_gguf

        path = self.source.path
        return open_gguf(path) if path is not None and is_gguf(path) else None

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint, mapped and not hashed."""
        if self.gguf is not None:
            return self.gguf.checkpoint
        folder = self.source.path if self.ranges is None else self.ranges.folder
        assert folder is not None
        return open_checkpoint(folder, replace(self.source.access, whole=False))

    @property
    def config(self) -> Mapping[str, Any]:
        """What a config.json, or the file itself, says of the model."""
        found = self.checkpoint
        return found.library_config if self.gguf is None else found.config

    @property
    def formats(self) -> Mapping[str, str]:
        """In what format every tensor is stored."""
        if self.gguf is not None:
            return self.gguf.formats
        return {name: str(t.dtype).removeprefix("torch.") for name, t in self.tensors.items()}

    @property
    def tensors(self) -> Mapping[str, torch.Tensor]:
        """All tensors, of which names, shapes and dtypes are known."""
        return self.checkpoint.tensors

    def read(self, names: Iterable[str]) -> dict[str, torch.Tensor]:
        """Some tensors with their numbers."""
        names = list(dict.fromkeys(names))
        if self.ranges is not None:
            self.ranges.fetch(name for name in names if name not in self.seen)
            del self.__dict__["checkpoint"]  # a mapping made before may not see what was fetched
        one = self.tensors.__getitem__ if self.gguf is None else self.gguf.read
        found = {name: one(name).clone() for name in names}
        self.seen |= found
        return found

    @property
    def sha256(self) -> str:
        """The digest of what was read: the rest was not looked at."""
        return digest_tensors(self.seen)

    @property
    def note(self) -> str:
        """How much was read, of how much."""
        asked = "" if self.ranges is None else f"; {human_size(self.ranges.asked)} were fetched"
        total = sum(tensor.numel() for tensor in self.tensors.values())
        taken = sum(tensor.numel() for tensor in self.seen.values())
        words = f"{len(self.seen)} of {len(self.tensors)} tensors"
        kinds = ", ".join(f"{n} as {kind}" for kind, n in Counter(self.formats.values()).items())
        return f"{words} were read, {taken:,} of {total:,} numbers{asked}; stored: {kinds}"


def open_stored(source: Source) -> StoredWeights:
    """The weights behind a path, a demo or a hub id; nothing but headers is read."""
    if source.kind != "hub":
        if source.path is None:
            raise SourceError(
                "E_UNSUPPORTED",
                f"a {source.kind} source is no file whose weights could be read alone",
                hint="leave --weights-only out, or give a checkpoint",
            )
        return StoredWeights(source)
    from memaudit.loading.hub import open_ranges

    found = open_ranges(source.text.partition("@")[0], source.revision, source.access)
    if isinstance(found, Path):  # a copy that is there
        return StoredWeights(replace(source, kind="path", path=found))
    return StoredWeights(source, found)
