"""The folder of a retrofit opened again: its plain weights behind the forms that they had."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from memaudit.errors import SourceError, clean
from memaudit.loading.saving import RAW_NAME, read_raw_tensors, read_record
from memaudit.retrofitting.file_side import put_behind, read_side
from memaudit.retrofitting.model import modules_of
from memaudit.retrofitting.record import Record
from memaudit.retrofitting.sites import common_end, find_sites, site_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor

    from memaudit.contracts import AbstractSubject
    from memaudit.loading.checkpoint import Checkpoint
    from memaudit.retrofitting.file_side import FileSide


def record_of(folder: Path) -> Record:
    """What the folder says of its retrofit."""
    return Record.from_dict(read_record(folder))


def recorded(
    folder: Path, adapter: str | None, own: dict[str, Any]
) -> tuple[Record, str | None, dict[str, Any]]:
    """The record, with the adapter and the options to open the folder with.

    They are those of the retrofit where the caller does not ask for others.
    """
    record = record_of(folder)
    if adapter not in (None, record.adapter):
        return record, adapter, own
    return record, record.adapter, {**record.options, **own}


def restore(
    subject: AbstractSubject, checkpoint: Checkpoint, folder: Path, record: Record
) -> list[FileSide]:
    """Put the weights of an opened subject behind their forms; the same in the file's dtype."""
    raw = read_raw_tensors(folder)
    sites = find_sites(modules_of(subject))
    sides: list[FileSide] = []
    for entry in record.entries:
        key = _key(entry.key, checkpoint.tensors)
        site = site_of(key, entry.weight, checkpoint.tensors[key], sites)
        sites = [one for one in sites if one is not site]
        side = read_side(site, entry, raw, checkpoint.tensors, key)
        put_behind(site, entry, raw, side)
        sides.append(side)
    said = f"recurrent weights behind the form {clean(record.reparam)}: {len(sides)}"
    notes = (*subject.identity.notes, said)
    subject.identity = replace(subject.identity, notes=notes)
    return sides


def _key(key: str, tensors: Mapping[str, Tensor]) -> str:
    """The key, or the one that a library which saves under other names made of it."""
    if key in tensors:
        return key
    ends = {name: common_end(name, key) for name in tensors}
    most = max(ends.values(), default=0)
    found = [name for name, end in ends.items() if end == most]
    if most < 1 or len(found) != 1:
        raise SourceError(
            "E_WEIGHTS",
            f"{RAW_NAME} is about {clean(key)}, which is not among the weights",
            hint="one of the two files was changed alone; write the folder again",
            stage="open",
        )
    return found[0]
