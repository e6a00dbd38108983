"""Weights that are split over several files, and the index that says where each tensor is."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from memaudit.errors import MemauditError, SourceError, clean, listed
from memaudit.loading.container import Weights
from memaudit.loading.disk.budget import human_size, require_room
from memaudit.loading.disk.containment import open_within, plain_name, within
from memaudit.loading.disk.folder import INDEX
from memaudit.loading.disk.one_pass import Meter
from memaudit.loading.disk.regular_file import changed_while_read, read_whole
from memaudit.loading.formats.strict_json import BadJson, TooManyPieces, parse_object
from memaudit.loading.weight_file import WeightFile, read_weight_file

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from memaudit.loading.access import Access
    from memaudit.loading.disk.stamp import Stamp

_FORMATS = {".safetensors": ("safetensors",), ".bin": ("torch", "torch-legacy")}
#: Commas of an entry in the index, with room for what else stands in it.
_PIECES = 4
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
    for name, size in sizes.items():
        with open_within(folder, name) as file:
            if file.size != size:
                raise changed_while_read().at(file.path)
            shard = read_weight_file(file, access, meter=meter)
        if shard.format not in _FORMATS[suffix]:
            raise _unlike(f"the shard {clean(name)} has the format {shard.format}, not {suffix}")
        _require_places(name, places[name], shard.weights.tensors)
        found.append(shard)
    return found


def join(shards: Sequence[WeightFile]) -> Weights:
    """The weights of all shards together; no two of them share a name."""
    tensors, metadata = {}, {}
    for shard in reversed(shards):  # where they differ, the first one speaks
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
            raise _too_long(file.size, limits.max_header)
        data = read_whole(file)
    try:
        found = parse_object(data, most_pieces=_PIECES * (limits.max_tensors + 1024))
    except TooManyPieces:
        raise _too_many(limits.max_tensors) from None
    except BadJson as error:
        raise _damaged(f"the index {error}") from None
    weight_map = found.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise _damaged("the index has no weight_map")
    if len(weight_map) > limits.max_tensors:
        raise _too_many(limits.max_tensors)
    places: dict[str, set[str]] = {}
    for tensor, shard in weight_map.items():
        if not isinstance(shard, str):
            raise _damaged(f"the index names no file for {clean(tensor[:1000], limit=120)!r}")
        places.setdefault(shard, set()).add(tensor)
    for shard in places:
        if not plain_name(shard).lower().endswith(suffix):
            raise _unlike(f"the index names {clean(shard)}, which is no {suffix} file")
    return places


def _size(folder: Path, name: str) -> int:
    try:
        return within(folder, name).stat().st_size
    except OSError:
        raise _missing(name) from None
    except SourceError as error:
        if error.code != "E_NOT_FOUND":
            raise
        raise _missing(name) from None


def _require_places(shard: str, expected: Collection[str], found: Collection[str]) -> None:
    missing, extra = sorted({*expected} - {*found}), sorted({*found} - {*expected})
    if not missing and not extra:
        return
    parts = [f"{_listed(missing)} missing from it"] if missing else []
    parts += [f"{_listed(extra)} not named for it"] if extra else []
    raise _unlike(f"the shard {clean(shard)} does not hold what the index says: {'; '.join(parts)}")


def _listed(names: Sequence[str]) -> str:
    return f"{listed(names, most=4, limit=80)} {'is' if len(names) == 1 else 'are'}"


def _missing(name: str) -> SourceError:
    fact = f"the shard {clean(name)} is missing: the download is not complete"
    return SourceError("E_NOT_FOUND", fact, hint="fetch it again", stage="open")


def _too_long(size: int, most: int) -> SourceError:
    return SourceError(
        "E_LIMIT",
        f"the index has {human_size(size)}, more than {human_size(most)}",
        hint="is this a model? if so, raise the limit with --set max_header=SIZE",
        stage="open",
    )


def _too_many(most: int) -> SourceError:
    return SourceError(
        "E_LIMIT",
        f"the index names more than {most} tensors",
        hint="is this a model? if so, raise the limit with --set max_tensors=N",
        stage="open",
    )


def _unlike(fact: str) -> SourceError:
    return SourceError("E_WEIGHTS", fact, hint=_FETCH, stage="open")


def _damaged(fact: str) -> SourceError:
    hint = "copy or download the index again"
    return SourceError("E_CORRUPT", fact, hint=hint, stage="open")
