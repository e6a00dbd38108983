"""Which file of a folder holds the model's weights."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from memaudit.errors import MachineError, SourceError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".npz")
#: File names (without suffix) that mean "the model", in groups; an earlier group wins.
_MODEL_STEMS = (
    frozenset({"model", "pytorch_model"}),
    frozenset({"checkpoint", "ckpt", "last", "params", "state_dict", "weights"}),
)
_BESIDE_THE_MODEL = re.compile(r"optim|sched|scaler|rng_state|training_args|(^|_)opt(_|$)")
_SHARD = re.compile(r"-\d{5}-of-\d{5}$")
_EXPORT = "save the weights as model.safetensors"


def choose_weight_file(folder: Path) -> tuple[Path, list[str]]:
    """The weight file of a folder, and a note when others were passed over."""
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if not entry.is_dir())
    except OSError as error:
        raise MachineError(
            "E_DISK",
            f"the folder cannot be listed: {error.strerror}",
            hint="check its permissions",
            stage="open",
        ) from None
    weights = [name for name in names if _stem_and_suffix(name)[1] in SUFFIXES]
    candidates = [name for name in weights if not _BESIDE_THE_MODEL.search(name.lower())]
    whole = [name for name in candidates if not _SHARD.search(_stem_and_suffix(name)[0])]
    for stems in _MODEL_STEMS:
        known = [name for name in whole if _stem_and_suffix(name)[0] in stems]
        if known:
            return _only(folder, known, whole)
    if len(whole) < len(candidates) or any(name.endswith(".index.json") for name in names):
        raise SourceError(
            "E_UNSUPPORTED",
            "the weights are split over several shards, which memaudit does not open yet",
            hint=f"{_EXPORT} in one piece (save_pretrained with a large max_shard_size)",
            stage="open",
        )
    if not whole:
        raise _no_weights(folder, names)
    return _only(folder, whole, whole)


def _stem_and_suffix(name: str) -> tuple[str, str]:
    stem, dot, suffix = name.lower().rpartition(".")
    return stem, dot + suffix


def _only(folder: Path, names: Sequence[str], every: Sequence[str]) -> tuple[Path, list[str]]:
    """The one safetensors file among the names, else the one file; two are a question."""
    safe = [name for name in names if name.lower().endswith(".safetensors")]
    chosen = safe or names
    if len(chosen) > 1:
        raise SourceError(
            "E_PATH",
            f"the folder holds {len(chosen)} checkpoints: {', '.join(chosen[:8])}",
            hint="give one of these files instead of the folder",
            stage="open",
        )
    others = [name for name in every if name != chosen[0]]
    note = f"{chosen[0]} was opened; not {', '.join(others[:8])}"
    return folder / chosen[0], [note] if others else []


def _no_weights(folder: Path, names: Sequence[str]) -> SourceError:
    if "saved_model.pb" in names:
        return SourceError(
            "E_UNSAFE_FORMAT",
            "this is a TensorFlow SavedModel, which carries code",
            hint=f"load it where it was made and {_EXPORT}",
            stage="open",
        )
    foreign = [n for n in names if n.endswith((".h5", ".keras", ".onnx", ".msgpack", ".gguf"))]
    if foreign:
        return SourceError(
            "E_UNSUPPORTED",
            f"the folder holds no weights that memaudit opens, only {', '.join(foreign[:4])}",
            hint=f"load it where it was made and {_EXPORT}",
            stage="open",
        )
    return SourceError(
        "E_NOT_FOUND",
        f"the folder {folder.name} holds no weights",
        hint=f"expected one file ending in {', '.join(SUFFIXES)}",
        stage="open",
    )
