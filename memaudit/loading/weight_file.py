"""One weight file, whatever its format: read in one pass, checked, and stamped."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memaudit.errors import MemauditError, SourceError, clean
from memaudit.faults import step
from memaudit.loading.container import Weights, find_weights, is_auxiliary
from memaudit.loading.disk.budget import require_room
from memaudit.loading.disk.one_pass import Meter, OnePass
from memaudit.loading.disk.regular_file import out_of_memory
from memaudit.loading.disk.stamp import Stamp
from memaudit.loading.formats.archive import read_archive
from memaudit.loading.formats.magic import HEAD, sniff
from memaudit.loading.formats.msgpack_file import read_msgpack
from memaudit.loading.formats.npz_file import read_npz
from memaudit.loading.formats.safetensors_file import read_safetensors
from memaudit.loading.pickles.torch_file import read_torch

if TYPE_CHECKING:
    from memaudit.loading.access import Access
    from memaudit.loading.disk.regular_file import RegularFile

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
        return _read(file, access, meter or Meter(access, file.size))
    except MemoryError:
        raise out_of_memory().at(file.path) from None
    except MemauditError as error:
        raise error.at(file.path) from None


def _read(file: RegularFile, access: Access, meter: Meter) -> WeightFile:
    head = file.read(0, min(HEAD, file.size))
    found = sniff(head, suffix=file.path.suffix.lower())
    # A file of any other format is in memory twice, as bytes and as tensors.
    require_room(file.size, access, copies=1 if found == "safetensors" else 2)
    step("open.read")
    if found == "safetensors":
        tensors, header, digest = read_safetensors(file, access, meter)
        weights = Weights(tensors, "", header.metadata, ())
    else:
        one_pass = OnePass(file, meter)
        data = one_pass.rest()
        digest = one_pass.finish()
        found, weights = _parse(data, found, access)
    step("open.parsed")
    _require_names(weights)
    return WeightFile(found, weights, Stamp.of(file, digest))


def _parse(data: bytes, found: str, access: Access) -> tuple[str, Weights]:
    if found == "zip":
        found, members = read_archive(data, access)
        if found == "npz":
            tensors, metadata, said = read_npz(data, members, allow_pickle=access.allow_pickle)
            return found, Weights(tensors, "", metadata, tuple(said))
    if found == "msgpack":
        tensors, metadata, said = read_msgpack(data, access.limits, beside=is_auxiliary)
        said += ["msgpack has no checksums: a damaged number goes unnoticed"]
        return found, Weights(tensors, "", metadata, tuple(said))
    content, notes = read_torch(data, access=access)
    weights = find_weights(content, max_tensors=access.limits.max_tensors)
    if found == "torch-legacy":
        notes += ("the legacy torch format has no checksums: a damaged number goes unnoticed",)
    return found, replace(weights, notes=(*weights.notes, *notes))


def _require_names(weights: Weights) -> None:
    if not weights.tensors:
        raise SourceError(
            "E_WEIGHTS", "the file holds no weights", hint="is this the right file?", stage="open"
        )
    longest = max(weights.tensors, key=len)
    if len(longest) > LONGEST_NAME:
        raise SourceError(
            "E_LIMIT",
            f"a tensor's name has {len(longest)} characters: {clean(longest[:200], limit=60)}",
            hint="no model names its weights like that; look into the file",
            stage="open",
        )
