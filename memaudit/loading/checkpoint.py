"""The one door to a checkpoint on disk: a file or a folder becomes named tensors."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memaudit.errors import MemauditError, SourceError, clean
from memaudit.loading.access import SAFE, Access
from memaudit.loading.configs.config import CONFIG_NAME, Config, config_names, open_config
from memaudit.loading.configs.config_budget import check_config
from memaudit.loading.configs.hyper_parameters import with_hyper_parameters
from memaudit.loading.disk.containment import open_within
from memaudit.loading.disk.folder import INDEX, SHARD, choose_weight_file
from memaudit.loading.disk.regular_file import kind_of, open_regular
from memaudit.loading.disk.shards import join, joint_digest, read_shards
from memaudit.loading.weight_file import WeightFile, read_weight_file

if TYPE_CHECKING:
    import torch

    from memaudit.loading.container import Weights
    from memaudit.loading.disk.stamp import Stamp

_SUFFIX_OF = {".safetensors": "safetensors", ".npz": "npz", ".msgpack": "msgpack"}
#: What is wrong with a config that is left aside when the user names the weight file himself.
_ODD_CONFIG = frozenset({"E_CONFIG", "E_LIMIT", "E_PATH", "E_NOT_FOUND"})


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Named tensors from disk, with what stood beside them.

    `tensors` are detached, strided and on the CPU, in file order. `metadata` holds a safetensors
    header's entries, or the plain values beside the weights of another file: text as it is,
    everything else as JSON. `config` is what a config.json beside the weights states; without one,
    a trainer's settings in YAML; without those, the hyper-parameters in the file, which have no
    `config_path`. `sha256` is that of the weight file; when there are several `files`, it is that
    of the text with one line `NAME SHA256` per file, in the order of the names. `notes` are
    sentences for the report, `stamps` what `changes` compares the files with.
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
    stamps: tuple[Stamp, ...] = field(default=(), repr=False)

    @property
    def library_config(self) -> dict[str, Any]:
        """The config when it is a config.json, as libraries write it; empty when it is not."""
        named = self.config_path is not None and self.config_path.name == CONFIG_NAME
        return self.config if named else {}

    def changes(self) -> list[MemauditError]:
        """What happened to the weight files since they were read: E_CHANGED for each that differs.

        They are read and hashed again, except very large ones that the system says are untouched.
        """
        found = (stamp.change() for stamp in self.stamps)
        return [error for error in found if error is not None]


def open_checkpoint(path: Path, access: Access = SAFE) -> Checkpoint:
    """Open a weight file, or the weights of a folder, and the config beside them."""
    path = Path(path)
    try:
        return _open(path, access)
    except MemauditError as error:
        raise error.at(path) from None


def _open(path: Path, access: Access) -> Checkpoint:
    if kind_of(path) == "folder":
        config = open_config(path)
        files, notes = _from_folder(path, access)
        weights = join(files)
        check_config(config, weights.tensors)
    else:
        config = _config_beside(path)
        files, notes = _from_file(path, access)
        weights = join(files)
        config = _fitting(config, weights)
        if config.path and config.of_library:
            notes.append(f"{CONFIG_NAME} beside the file was read")
    config = with_hyper_parameters(config, weights.metadata, weights.tensors)
    stamps = tuple(file.stamp for file in files)
    return Checkpoint(
        path=path,
        files=tuple(stamp.path for stamp in stamps),
        format=files[0].format,
        tensors=weights.tensors,
        container=weights.container,
        config=config.values,
        config_path=config.path,
        metadata=weights.metadata,
        sha256=joint_digest(stamps),
        notes=(*notes, *config.notes, *weights.notes),
        stamps=stamps,
    )


def _from_folder(folder: Path, access: Access) -> tuple[list[WeightFile], list[str]]:
    """What a folder offers; links must not lead out of it."""
    chosen, notes = choose_weight_file(folder)
    if chosen.name.lower().endswith(INDEX):
        shards = read_shards(folder, chosen.name, access)
        return shards, [*notes, f"{len(shards)} shards were opened by {clean(chosen.name)}"]
    with open_within(folder, chosen.name) as opened:
        file = read_weight_file(opened, access)
    return [file], [*notes, *_misnamed(chosen, file)]


def _from_file(path: Path, access: Access) -> tuple[list[WeightFile], list[str]]:
    """The file that the user named, whatever links lead to it."""
    with open_regular(path) as opened:
        file = read_weight_file(opened, access)
    notes = _misnamed(path, file)
    if SHARD.search(path.stem):
        notes.append("this is one shard of several; give the folder to audit the whole model")
    return [file], notes


def _config_beside(path: Path) -> Config:
    """The config in the folder of a file, which may be that of something else."""
    try:
        return open_config(path.parent)
    except SourceError as error:
        if error.code not in _ODD_CONFIG or path.name.lower().startswith("adapter_"):
            raise
        return _left_aside(error, next(iter(config_names(path.parent)), CONFIG_NAME))


def _fitting(config: Config, weights: Weights) -> Config:
    """The config, unless the weights of the file that the user named cannot be its own."""
    try:
        check_config(config, weights.tensors)
    except SourceError as error:
        if error.code not in _ODD_CONFIG:
            raise
        return _left_aside(error, config.name)
    return config


def _left_aside(error: SourceError, name: str) -> Config:
    return Config(None, {}, (f"{name} beside the file was not read: {error.fact}",))


def _misnamed(path: Path, file: WeightFile) -> list[str]:
    suffix = path.suffix.lower()
    if _SUFFIX_OF.get(suffix, file.format) == file.format:
        return []
    return [f"the file is called {suffix} but its format is {file.format}"]
