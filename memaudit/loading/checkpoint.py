"""The one door to a checkpoint on disk: a file or a folder becomes named tensors."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memaudit.errors import MemauditError, SourceError
from memaudit.loading.archive import archive_format
from memaudit.loading.config import find_config, read_config
from memaudit.loading.container import Weights, find_weights
from memaudit.loading.folder import choose_weight_file
from memaudit.loading.magic import sniff
from memaudit.loading.npz_file import read_npz
from memaudit.loading.regular_file import kind_of, read_regular
from memaudit.loading.safetensors_file import read_safetensors
from memaudit.loading.torch_file import read_torch

if TYPE_CHECKING:
    import torch

_SUFFIX_OF = {".safetensors": "safetensors", ".npz": "npz"}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Named tensors from disk, with what stood beside them.

    `tensors` are detached, strided and on the CPU, in file order. `metadata` holds a safetensors
    header's entries, or the plain values beside the weights of a torch file: text as it is,
    everything else as JSON. `notes` are sentences for the report.
    """

    path: Path
    files: tuple[Path, ...]
    format: str
    tensors: dict[str, torch.Tensor] = field(repr=False)
    container: str
    config: dict[str, Any] = field(repr=False)
    config_path: Path | None
    metadata: dict[str, str] = field(repr=False)
    sha256: str
    notes: tuple[str, ...]


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a weight file, or the weight file of a folder, and the config.json beside it."""
    path = Path(path)
    try:
        return _open(path)
    except MemauditError as error:
        raise error.at(path) from None


def _open(path: Path) -> Checkpoint:
    folder = kind_of(path) == "folder"
    file, notes = choose_weight_file(path) if folder else (path, [])
    config_path = find_config(file.parent)
    config = read_config(config_path) if config_path else {}
    if config_path and not folder:
        notes.append(f"{config_path.name} beside the file was read")
    try:
        data = read_regular(file)
        found, weights = _read(data, suffix=file.suffix.lower())
    except MemauditError as error:
        raise error.at(file) from None
    expected = _SUFFIX_OF.get(file.suffix.lower())
    if expected and expected != found:
        notes.append(f"the file is called {file.suffix} but its format is {found}")
    return Checkpoint(
        path=path,
        files=(file,),
        format=found,
        tensors=weights.tensors,
        container=weights.container,
        config=config,
        config_path=config_path,
        metadata=weights.metadata,
        sha256=hashlib.sha256(data).hexdigest(),
        notes=(*notes, *weights.notes),
    )


def _read(data: bytes, *, suffix: str) -> tuple[str, Weights]:
    found = sniff(data, suffix=suffix)
    if found == "zip":
        found = archive_format(data)
    if found == "safetensors":
        tensors, metadata = read_safetensors(data)
        weights = Weights(tensors, "", metadata, ())
    elif found == "npz":
        tensors, metadata, notes = read_npz(data)
        weights = Weights(tensors, "", metadata, tuple(notes))
    else:
        weights = find_weights(read_torch(data))
    if found == "torch-legacy":
        note = "the legacy torch format has no checksums: a damaged number goes unnoticed"
        weights = replace(weights, notes=(*weights.notes, note))
    if not weights.tensors:
        raise SourceError(
            "E_WEIGHTS", "the file holds no weights", hint="is this the right file?", stage="open"
        )
    return found, weights
