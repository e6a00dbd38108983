"""The one door to a checkpoint on disk: a file or a folder becomes named tensors."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from memaudit.errors import MemauditError, SourceError, clean, listed
from memaudit.faults import step
from memaudit.loading.access import SAFE, Access, human_size, require_room
from memaudit.loading.configs import (
    CONFIG_NAME,
    Config,
    check_config,
    config_names,
    open_config,
    with_hyper_parameters,
)
from memaudit.loading.files import (
    INDEX,
    SHARD,
    Meter,
    Stamp,
    choose_weight_file,
    digest,
    kind_of,
    open_regular,
    open_within,
    out_of_memory,
    plain_name,
    read_whole,
)
from memaudit.loading.filling import KEY
from memaudit.loading.formats import (
    HEAD,
    SAFETENSORS_HINT,
    BadJson,
    corrupt,
    open_archive,
    parse_object,
    plain_values,
    read_msgpack,
    read_npz,
    read_safetensors,
    refusal,
    sniff,
    too_many,
)
from memaudit.loading.pickles import Unnamed, read_torch

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from memaudit.loading.files import RegularFile

# -- Tensors that show more numbers than they store.

#: All tensors of a file together may show this much more than they store: an expanded bias may.
MOST_OVERLAP = 4
SMALL_OVERLAP = 1 << 28


def _require_stored(tensors: Mapping[str, torch.Tensor]) -> None:
    """Refuse views that show far more than the file stores: each is copied sooner or later."""
    claimed = {name: t.numel() * t.element_size() for name, t in tensors.items()}
    storages = [tensor.untyped_storage() for tensor in tensors.values()]
    held = sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())
    if sum(claimed.values()) > MOST_OVERLAP * held + SMALL_OVERLAP:
        largest = clean(max(claimed, key=claimed.__getitem__))
        fact = f"the tensors claim {human_size(sum(claimed.values()))} and store {human_size(held)}"
        raise refusal("E_LIMIT", f"{fact}; the largest is {largest!r}", hint=_DENSE_HINT)


_DENSE_HINT = "save plain dense tensors, e.g. with tensor.contiguous()"

# -- Where in a torch file the weights are: trainers wrap them in dictionaries of their own.

#: What trainers call the model's weights, the surest name first.
MODEL_NAMES = (
    "model_state_dict",
    "state_dict",
    "model_state",
    "model",
    "net",
    "network",
    "module",
    "model_weights",
    "weights",
    "params",
)
_AUXILIARY = re.compile(
    r"optimi[sz]er|(^|_)(opt|optim|rng)(_|$)|sched|scaler|callback|criterion|^amp$|^loops$"
)
#: What trainers call the settings: arrays in them are no weights.
_SETTINGS = re.compile(r"(datamodule_)?(hyper_?parameters|hparams)|config|cfg|args")
_AVERAGED = re.compile(r"(^|_)(ema|swa|shadow)(_|$)")
#: Deeper than any trainer nests; a dictionary that holds itself stops here.
DEEPEST = 8


@dataclass(frozen=True, slots=True)
class Weights:
    """The flat weights, the dotted path of their dictionary, and what stood beside them."""

    tensors: dict[str, torch.Tensor]
    container: str
    metadata: dict[str, str]
    notes: tuple[str, ...]

    @classmethod
    def of(
        cls, tensors: dict[str, torch.Tensor], metadata: dict[str, str], notes: list[str]
    ) -> Weights:
        """Weights that are not nested."""
        return cls(tensors, "", metadata, tuple(notes))


def find_weights(content: Any, *, max_tensors: int) -> Weights:
    """The model's weights in what torch.save wrote.

    Optimizer and scheduler states are never the model; averaged weights are only when nothing
    else is there. Several modules side by side are taken together, under dotted names.
    """
    _require_model(content)
    metadata: dict[str, str] = {}
    notes: list[str] = []
    path: list[str] = []
    node: dict[Any, Any] = content
    while len(path) < DEEPEST:
        metadata.update(plain_values(_beside(node), prefix=path))
        key = _inner(node, outermost=not path, notes=notes)
        if key is None:
            break
        node = node[key]
        path.append(key)
    tensors: dict[str, torch.Tensor] = {}
    for name, value in islice(_flatten(node, outermost=not path), max_tensors + 1):
        if name in tensors:
            fact = f"two tensors in the file have the name {clean(name, limit=100)!r}"
            hint = "save the model's own state dict, in which every name is unique"
            raise corrupt(fact, hint=hint)
        tensors[name] = value.detach()
    if len(tensors) > max_tensors:
        raise too_many(f"the file holds more than {max_tensors} tensors")
    _require_stored(tensors)
    tensors = {name: value.resolve_conj().resolve_neg() for name, value in tensors.items()}
    lists = [key for key, value in node.items() if _is_list_of_tensors(value)]
    if lists:
        notes.append(f"lists of unnamed tensors were left out: {_shown_keys(lists)}")
    return Weights(tensors, ".".join(path), metadata, tuple(notes))


def is_auxiliary(key: str) -> bool:
    """Whether a name means what trainers keep beside the model, such as an optimizer's state."""
    return _AUXILIARY.search(key.lower()) is not None


def _require_model(content: object) -> None:
    if not isinstance(content, dict):
        what = "a bare tensor" if isinstance(content, torch.Tensor) else type(content).__name__
        raise _unsupported(f"the file holds {what}, not a dictionary of named tensors")
    if set(content) == {"state", "param_groups"}:
        fact = "the file holds an optimizer's state, not a model"
        raise refusal("E_WEIGHTS", fact, hint="give the model's own file")


def _inner(node: dict[Any, Any], *, outermost: bool, notes: list[str]) -> str | None:
    """The key of the dictionary to descend into, or None when the weights are here."""
    inner = [k for k, v in node.items() if _may_be_model(k) and _holds_tensors(v)]
    loose = [k for k, v in node.items() if isinstance(v, torch.Tensor)]
    first = [k for k in inner if not _AVERAGED.search(k.lower())]
    # Inside the model's own dictionary a layer may be called "net" or "ema": no choice there.
    named = sorted((k for k in first if k in MODEL_NAMES), key=MODEL_NAMES.index)
    if outermost and named:
        beside = [k for k in inner if k != named[0]] + loose
        if beside:
            notes.append(f"the weights are {named[0]}; left out: {_shown_keys(beside)}")
        return named[0]
    if outermost and inner and not loose and not first:
        notes.append(f"only averaged weights are there: {inner[0]} was opened")
        return inner[0]
    if outermost and len(first) < len(inner):
        notes.append(f"left out: {_shown_keys([k for k in inner if k not in first])}")
    if outermost and len(first) > 1:
        notes.append(f"several modules were opened together: {_shown_keys(first)}")
    candidates = first if outermost else inner
    return candidates[0] if len(candidates) == 1 and not loose else None


def _flatten(
    node: dict[Any, Any], *, outermost: bool, prefix: str = "", depth: int = 0
) -> Iterable[tuple[str, torch.Tensor]]:
    if depth > DEEPEST:
        raise _unsupported("the dictionaries in the file are nested too deeply")
    for key, value in node.items():
        if isinstance(value, torch.Tensor):
            if not isinstance(key, str):
                raise _unsupported(f"tensors are named by {_kind(key)}, not by text")
            yield prefix + key, value
        elif _holds_tensors(value):
            if not isinstance(key, str):
                raise _unsupported(f"tensors are named by {_kind(key)}, not by text")
            if outermost and (_AVERAGED.search(key.lower()) or not _may_be_model(key)):
                continue
            yield from _flatten(value, outermost=False, prefix=f"{prefix}{key}.", depth=depth + 1)


def _kind(key: object) -> str:
    """What a key is; one that torch files cannot say has left only that."""
    return clean(key.kind, limit=100) if isinstance(key, Unnamed) else type(key).__name__


def _beside(node: dict[Any, Any]) -> dict[str, Any]:
    return {k: v for k, v in node.items() if _is_name(k)}


def _is_name(key: object) -> bool:
    return isinstance(key, str) and not is_auxiliary(key)


def _may_be_model(key: object) -> bool:
    return isinstance(key, str) and _is_name(key) and not _SETTINGS.fullmatch(key.lower())


def _holds_tensors(value: object) -> bool:
    """Whether a dictionary holds a tensor at any depth; an optimizer's state does not count."""
    seen: set[int] = set()
    layer: list[object] = [value]
    for _ in range(DEEPEST):
        dicts = [d for d in layer if isinstance(d, dict) and "param_groups" not in d]
        fresh = {id(d): d for d in dicts if id(d) not in seen}
        seen.update(fresh)
        layer = [v for d in fresh.values() for v in d.values()]
        if any(isinstance(v, torch.Tensor) for v in layer):
            return True
    return False


def _is_list_of_tensors(value: object) -> bool:
    return isinstance(value, list | tuple) and any(isinstance(v, torch.Tensor) for v in value)


def _shown_keys(names: Iterable[object]) -> str:
    return listed(names, most=6, limit=100)


def _unsupported(fact: str) -> SourceError:
    return refusal("E_UNSUPPORTED", fact, hint=SAFETENSORS_HINT)


# -- One weight file, whatever its format: read in one pass, checked, and stamped.

#: Real names have at most a few hundred characters; longer ones would slow every message down.
LONGEST_NAME = 4096


@dataclass(frozen=True, slots=True)
class WeightFile:
    """The format of a file by its bytes, the weights in it, and what the file was."""

    format: str
    weights: Weights
    stamp: Stamp


def read_weight_file(
    file: RegularFile, access: Access, *, meter: Meter | None = None
) -> WeightFile:
    """Read a file that is open; errors name it."""
    try:
        return _read_any(file, access, meter or Meter(access, file.size))
    except MemoryError:
        raise out_of_memory().at(file.path) from None
    except MemauditError as error:
        raise error.at(file.path) from None


def _read_any(file: RegularFile, access: Access, meter: Meter) -> WeightFile:
    found = sniff(file.read(0, min(HEAD, file.size)), suffix=file.path.suffix.lower())
    require_room(file.size, access)
    step("open.read")
    sha256 = digest(file, meter) if access.whole else ""
    found, weights = _weights(file, found, access)
    file.require_unchanged()
    step("open.parsed")
    _require_names(weights)
    return WeightFile(found, weights, Stamp.of(file, sha256))


def _weights(file: RegularFile, found: str, access: Access) -> tuple[str, Weights]:
    """The format, which for a zip archive its members tell, and the weights."""
    if found == "safetensors":
        return found, Weights.of(*read_safetensors(file, access.limits))
    if found == "msgpack":
        return found, Weights.of(*read_msgpack(file, access, beside=is_auxiliary))
    if found == "torch-legacy":
        content, notes = read_torch(file, None, access)
        notes += ("the legacy torch format has no checksums: a damaged number goes unnoticed",)
    else:
        with open_archive(file, access) as archive:
            if archive.format == "npz":
                arrays = read_npz(archive, allow_pickle=access.allow_pickle)
                return "npz", Weights.of(*arrays)
        found = "torch"
        content, notes = read_torch(file, archive, access)
    weights = find_weights(content, max_tensors=access.limits.max_tensors)
    return found, replace(weights, notes=(*weights.notes, *notes))


def _require_names(weights: Weights) -> None:
    if not weights.tensors:
        raise refusal("E_WEIGHTS", "the file holds no weights", hint="is this the right file?")
    longest = max(weights.tensors, key=len)
    if len(longest) > LONGEST_NAME:
        fact = f"a tensor's name has {len(longest)} characters: {clean(longest[:200], limit=60)}"
        hint = "no model names its weights like that; look into the file"
        raise refusal("E_LIMIT", fact, hint=hint)


# -- Weights that are split over several files, and the index that says where each tensor is.

_FORMATS = {".safetensors": ("safetensors",), ".bin": ("torch", "torch-legacy")}
_FETCH = "the download is not complete, or the index belongs to another model: fetch both again"


def read_shards(folder: Path, index: str, access: Access) -> list[WeightFile]:
    """Every shard that an index names, in the order of the names.

    All of them lie in the folder, have one format, and hold exactly the tensors that the index
    places in them.
    """
    suffix = next(s for s in _FORMATS if index.lower().endswith(s + INDEX))
    try:
        places = _read_index(folder, index, suffix, access)
    except MemauditError as error:
        raise error.at(folder / index) from None
    sizes = {name: _size(folder, name) for name in sorted(places)}
    require_room(sum(sizes.values()), access)
    meter = Meter(access, sum(sizes.values()))
    found: list[WeightFile] = []
    for name in sizes:
        with open_within(folder, name) as file:
            shard = read_weight_file(file, access, meter=meter)
        if shard.format not in _FORMATS[suffix]:
            raise _unlike(f"the shard {clean(name)} has the format {shard.format}, not {suffix}")
        _require_places(name, places[name], shard.weights.tensors)
        found.append(shard)
    return found


def join(shards: Sequence[WeightFile]) -> Weights:
    """The weights of all shards together; no two of them share a name."""
    tensors, metadata = {}, {}
    for shard in reversed(shards):  # where they differ, the first one counts
        metadata |= shard.weights.metadata
    for shard in shards:
        tensors |= shard.weights.tensors
    notes = dict.fromkeys(note for shard in shards for note in shard.weights.notes)
    return Weights(tensors, shards[0].weights.container, metadata, tuple(notes))


def joint_digest(stamps: Sequence[Stamp]) -> str:
    """The SHA-256 of one file; of several, that of the lines `NAME SHA256`, sorted by name."""
    if len(stamps) == 1:
        return stamps[0].sha256
    lines = sorted(f"{stamp.path.name} {stamp.sha256}\n" for stamp in stamps)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _read_index(folder: Path, index: str, suffix: str, access: Access) -> Mapping[str, set[str]]:
    """Shard → names of its tensors."""
    limits = access.limits
    with open_within(folder, index) as file:
        if file.size > limits.max_header:
            fact = (
                f"the index has {human_size(file.size)}, more than {human_size(limits.max_header)}"
            )
            hint = "is this a model? if so, raise the limit with --set max_header=SIZE"
            raise refusal("E_LIMIT", fact, hint=hint)
        data = read_whole(file)
    try:
        found = parse_object(data)
    except BadJson as error:
        raise _damaged_index(f"the index {error}") from None
    weight_map = found.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise _damaged_index("the index has no weight_map")
    if len(weight_map) > limits.max_tensors:
        raise too_many(f"the index names more than {limits.max_tensors} tensors")
    places: dict[str, set[str]] = {}
    for tensor, shard in weight_map.items():
        if not isinstance(shard, str):
            raise _damaged_index(f"the index names no file for {clean(tensor[:1000], limit=120)!r}")
        places.setdefault(shard, set()).add(tensor)
    for shard in places:
        if not plain_name(shard).lower().endswith(suffix):
            raise _unlike(f"the index names {clean(shard)}, which is no {suffix} file")
    return places


def _size(folder: Path, name: str) -> int:
    try:
        with open_within(folder, name) as file:
            return file.size
    except SourceError as error:
        if error.code != "E_NOT_FOUND":
            raise
        fact = f"the shard {clean(name)} is missing: the download is not complete"
        raise refusal("E_NOT_FOUND", fact, hint="fetch it again") from None


def _require_places(shard: str, expected: Collection[str], found: Collection[str]) -> None:
    missing, extra = sorted({*expected} - {*found}), sorted({*found} - {*expected})
    if not missing and not extra:
        return
    parts = [f"{_shown_tensors(missing)} missing from it"] if missing else []
    parts += [f"{_shown_tensors(extra)} not named for it"] if extra else []
    raise _unlike(f"the shard {clean(shard)} does not hold what the index says: {'; '.join(parts)}")


def _shown_tensors(names: Sequence[str]) -> str:
    return f"{listed(names, most=4, limit=80)} {'is' if len(names) == 1 else 'are'}"


def _unlike(fact: str) -> SourceError:
    return refusal("E_WEIGHTS", fact, hint=_FETCH)


def _damaged_index(fact: str) -> SourceError:
    return corrupt(fact, hint="copy or download the index again")


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
    for key, tensor in weights.tensors.items():
        setattr(tensor, KEY, key)
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
