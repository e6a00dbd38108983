"""Which file of a folder holds the model's weights, or the index of its shards."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from memaudit.errors import MachineError, SourceError, clean, listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".npz", ".msgpack")
#: Opened when nothing else is there: flax models are often saved beside the same in torch.
_LAST = ".msgpack"
#: The formats that are split into shards, safest first.
SPLIT = (".safetensors", ".bin")
INDEX = ".index.json"
SHARD = re.compile(r"-\d{5}-of-\d{5}$")
#: A folder of this name takes the model's place: it is refused, nothing else is opened instead.
_THE_MODEL = "model.safetensors"
#: File names (without suffix) that mean "the model", in groups; an earlier group wins.
_MODEL_STEMS = (
    frozenset({"model", "pytorch_model"}),
    frozenset({"checkpoint", "ckpt", "last", "params", "state_dict", "weights"}),
)
_BESIDE_THE_MODEL = re.compile(
    r"optim|sched|scaler|rng_state|training_args|(^|_)opt(_|$)|^adapter_|^sampler(_\d+)?\."
    r"|^retrofit\.safetensors$"
)
#: What Orbax writes into every checkpoint.
_ORBAX = ("_METADATA", "_CHECKPOINT_METADATA", "manifest.ocdbt")
_EXPORT = "save the weights as model.safetensors"


def choose_weight_file(folder: Path) -> tuple[Path, list[str]]:
    """The weight file of a folder or the index of its shards, and a note on what was passed over.

    Safetensors win, and whole files win over shards. What is chosen is opened, or nothing is:
    a damaged file is never replaced by another one beside it.
    """
    files, folders = _listed(folder)
    names = [*files, *(name for name in folders if name.lower() == _THE_MODEL)]
    found, every = rank_weights(names)
    if not found:
        raise _no_weights(folder, files, folders)
    if len(found) > 1:
        raise SourceError(
            "E_PATH",
            f"the folder holds {len(found)} checkpoints: {_shown(found)}",
            hint="give one of these files instead of the folder",
            stage="open",
        )
    others = [name for name in every if name != found[0]]
    note = f"{clean(found[0])} was opened; not {_shown(others)}"
    return folder / found[0], [note] if others else []


def rank_weights(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """The names that win (one, or several that are a question), and all whole weight files."""
    names = sorted(names)
    weights = [name for name in names if stem_and_suffix(name)[1] in SUFFIXES]
    candidates = [name for name in weights if not _BESIDE_THE_MODEL.search(name.lower())]
    whole = [name for name in candidates if not SHARD.search(stem_and_suffix(name)[0])]
    last = [name for name in whole if stem_and_suffix(name)[1] == _LAST]
    best = _best([name for name in whole if name not in last], names) or _best(last, ())
    return _safe(best) or best, whole


def _best(whole: Sequence[str], names: Sequence[str]) -> list[str]:
    """The first rank that is not empty, among whole files and the indices in `names`."""
    first, second = ([n for n in whole if stem_and_suffix(n)[0] in s] for s in _MODEL_STEMS)
    safe, binary = ([n for n in names if n.lower().endswith(s + INDEX)] for s in SPLIT)
    ranks = (
        _safe(first),
        [n for n in safe if n.lower().split(".")[0] in _MODEL_STEMS[0]],
        first,
        [n for n in binary if n.lower().split(".")[0] in _MODEL_STEMS[0]],
        second,
        _safe(whole),
        safe,
        list(whole),
        binary,
    )
    return next((rank for rank in ranks if rank), [])


def stem_and_suffix(name: str) -> tuple[str, str]:
    """A name in small letters without its last suffix, and that suffix."""
    stem, dot, suffix = name.lower().rpartition(".")
    return stem, dot + suffix


def _safe(names: Sequence[str]) -> list[str]:
    return [name for name in names if name.lower().endswith(".safetensors")]


def _listed(folder: Path) -> tuple[list[str], list[str]]:
    try:
        with os.scandir(folder) as entries:
            kinds = {entry.name: _is_folder(entry) for entry in entries}
    except OSError as error:
        raise MachineError(
            "E_DISK",
            f"the folder cannot be listed: {error.strerror}",
            hint="check its permissions",
            stage="open",
        ) from None
    names = sorted(kinds)
    return [n for n in names if not kinds[n]], [n for n in names if kinds[n]]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads in a circle
        return False


def _shown(names: Sequence[str]) -> str:
    return listed(names, limit=60)


def _no_weights(folder: Path, names: Sequence[str], folders: Sequence[str]) -> SourceError:
    code, fact, hint = _why_none(folder, names, folders)
    return SourceError(code, fact, hint=hint, stage="open")


def _why_none(folder: Path, names: Sequence[str], folders: Sequence[str]) -> tuple[str, str, str]:
    """The code, the fact and the next step for a folder without weights."""
    elsewhere = f"load it where it was made and {_EXPORT}"
    if "saved_model.pb" in names:
        return "E_UNSAFE_FORMAT", "this is a TensorFlow SavedModel, which carries code", elsewhere
    if any(name in _ORBAX for name in names):
        hint = "restore it where it was made and save the parameters as .npz or .msgpack"
        return "E_UNSUPPORTED", "this is an Orbax checkpoint, which memaudit does not open", hint
    shards = [n for n in names if SHARD.search(stem_and_suffix(n)[0]) and n.endswith(SPLIT)]
    if shards:
        whole = SHARD.sub("", shards[0].rpartition(".")[0]) + "." + shards[0].rpartition(".")[2]
        fact = f"the folder holds {len(shards)} shards but not their index, {clean(whole)}{INDEX}"
        hint = "fetch the index as well, or give one shard as a file to audit it alone"
        return "E_NOT_FOUND", fact, hint
    foreign = [n for n in names if n.endswith((".h5", ".keras", ".onnx", ".gguf"))]
    if foreign:
        fact = f"the folder holds no weights that memaudit opens, only {_shown(foreign)}"
        return "E_UNSUPPORTED", fact, elsewhere
    inside = [name for name in folders if name.lower().endswith(SUFFIXES)]
    if inside:
        fact = f"{clean(inside[0])} is a folder, not a weight file"
        return "E_PATH", fact, "give the file itself, or the folder that holds it"
    fact = f"the folder {clean(folder.name)} holds no weights"
    return "E_NOT_FOUND", fact, f"expected one file ending in {', '.join(SUFFIXES)}"
