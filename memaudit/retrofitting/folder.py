"""The folder of a retrofit: the plain checkpoint, and the raw weights beside it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from memaudit.audit import open_source
from memaudit.errors import ArgumentError, SourceError, clean
from memaudit.interfaces import DenseDecay, NoDecay
from memaudit.loading.files import plain_name
from memaudit.loading.filling import checkpoint_key
from memaudit.loading.saving import (
    RAW_NAME,
    RECORD_NAME,
    WRITTEN_BY,
    copy_companions,
    is_retrofit,
    no_retrofit,
    read_raw_tensors,
    read_record,
    require_vacant,
    staged,
    write_retrofit_files,
    write_safetensors,
    write_weights,
)
from memaudit.retrofitting.finding import find_decays
from memaudit.retrofitting.model import modules_of, owner_paths, require_plain, retrofit
from memaudit.retrofitting.record import (
    NEVER_RECORDED,
    Original,
    Record,
    bad_record,
    form_from_dict,
    load_raw_tensors,
    raw_entry,
    raw_tensors,
    write_raw,
)
from memaudit.retrofitting.record import read_raw as load_raw
from memaudit.retrofitting.weights import DenseWeight, swap, weight_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memaudit.interfaces import AbstractReparam, AbstractSubject, DiagonalDecay
    from memaudit.loading.checkpoint import Checkpoint
    from memaudit.retrofitting.record import RawEntry
    from memaudit.retrofitting.result import Retrofit

    Decay = DiagonalDecay | DenseDecay


__all__ = ["fold_folder", "load_raw", "retrofit_source", "save_retrofit"]

PLAIN = "model.safetensors"
#: What several shards become again: one file.
WHOLE = {"safetensors": PLAIN, "torch": "pytorch_model.bin", "torch-legacy": "pytorch_model.bin"}


def retrofit_source(
    source: str | Path,
    out: str | Path,
    reparam: str = "best",
    *,
    project: bool = False,
    layers: Sequence[str] | None = None,
    radius: bool | None = None,
    constants: dict[str, Any] | None = None,
    **options: Any,
) -> Retrofit:
    """Retrofit a checkpoint and write the folder; `options` are those of `memaudit.load`.

    The folder holds the source's tensors under their own names and in their own dtypes, so that
    whatever opens the source opens the folder too. Nothing is written unless all of it is.
    """
    out = Path(out)
    require_vacant(out)
    opened = open_source(source, **options)
    where = opened.source
    if where is None or not where.has_checkpoint:
        raise SourceError(
            "E_UNSUPPORTED",
            "there are no weight files behind the source that could be written again",
            hint="give a file, a folder or a hub id",
            source=source,
            stage="retrofit",
        )
    modules = modules_of(opened.subject)
    require_plain(modules.values())
    paths = owner_paths(modules)
    decays = {
        ".".join(filter(None, (paths[decay.owner], decay.name))): decay
        for decay in find_decays(modules)
        if not isinstance(decay, NoDecay)
    }
    given = dict(constants or {})
    done = retrofit(opened.subject, reparam, project=project, layers=layers, radius=radius, **given)
    if not done.layers:
        reasons = "; ".join(f"{one.layer}: {one.reason}" for one in done.refused[:3])
        more = f"; and {len(done.refused) - 3} more" if len(done.refused) > 3 else ""
        reach = any("out of reach" in one.reason for one in done.refused)
        raise SourceError(
            "E_UNSUPPORTED",
            f"no layer could be retrofitted: {clean(reasons, limit=800)}{more}",
            hint="try another --reparam, or --project" if reach else "scan it to see what it does",
            stage="retrofit",
        )
    sides, entries = _written_sides(done, decays, where.checkpoint)
    record = Record(
        reparam=done.reparam,
        entries=tuple(entries),
        refused=done.refused,
        source=where.text,
        adapter=opened.subject.identity.adapter,
        options={name: value for name, value in options.items() if name not in NEVER_RECORDED},
        original=_original(where.checkpoint),
    )
    checkpoint = where.checkpoint
    tensors = {**checkpoint.tensors, **{side.key: side.folded() for side in sides}}
    raw = {}
    for side in sides:
        raw |= raw_tensors(side.owner, side.name, side.key)
    with staged(out) as folder:
        write_safetensors(folder / PLAIN, tensors, metadata={**WRITTEN_BY, **checkpoint.metadata})
        write_retrofit_files(folder, record.to_dict(), raw)
        copy_companions(checkpoint, folder)
    return done


def fold_folder(folder: str | Path, out: str | Path, **options: Any) -> tuple[str, ...]:
    """Write the original format of a retrofit folder; the keys of the weights that were folded.

    What was not trained is that of the source, bit by bit.
    """
    folder, out = Path(folder), Path(out)
    if not is_retrofit(folder):
        raise no_retrofit(folder)
    require_vacant(out)
    record = Record.from_dict(read_record(folder))
    given = {"adapter": record.adapter, **record.options, **options}
    opened = open_source(folder, restored=False, **given)
    assert opened.source is not None
    checkpoint = opened.source.checkpoint
    sides = restore(opened.subject, checkpoint, folder, record)
    tensors = dict(checkpoint.tensors)
    tensors |= {side.key: side.folded().to(tensors[side.key].dtype) for side in sides}
    original = record.original
    with staged(out) as made:
        copy_companions(checkpoint, made)
        write_weights(
            _place(made, original.file),
            tensors,
            checkpoint.metadata,
            file_format=original.format,
            container=original.container,
        )
    return tuple(side.key for side in sides)


def save_retrofit(model: nn.Module, folder: str | Path) -> None:
    """Save a retrofitted module as a folder: its plain state dict and the raw weights.

    `load_raw` puts them back into a module that was retrofitted in the same way.
    """
    tensors = {name: value for name, value in model.state_dict().items() if hasattr(value, "dtype")}
    with staged(Path(folder)) as made:
        write_raw(model, made)
        write_safetensors(made / PLAIN, tensors, metadata=WRITTEN_BY)


def _written_sides(
    done: Retrofit, decays: Mapping[str, Decay], checkpoint: Checkpoint
) -> tuple[list[FileSide], list[RawEntry]]:
    """Every retrofitted weight in the dtype of the file, and what is to be said of it."""
    sides: list[FileSide] = []
    entries: list[RawEntry] = []
    for layer in done.layers:
        decay = decays[layer.weight]
        key = checkpoint_key(decay.owner, decay.name)
        if key is None:
            raise SourceError(
                "E_UNSUPPORTED",
                f"no tensor of the checkpoint is the weight {clean(layer.weight)} as it is, so a "
                "retrofit cannot be written",
                hint="retrofit the model in Python: memaudit.retrofit(model)",
                stage="retrofit",
            )
        if any(side.key == key for side in sides):
            raise ArgumentError(
                f"two layers have the one weight {clean(key)}",
                hint="retrofit one of them with --layer",
            )
        inner, stored = weight_of(decay.owner, decay.name), checkpoint.tensors[key]
        if layer.moved:
            stored = inner.anchor.detach().cpu().to(stored.dtype)
        side = made_side(decay, key, inner.form, stored, checkpoint.tensors)
        named = {"weight": layer.weight, "layer": layer.layer, "cell": layer.cell}
        sides.append(side)
        entries.append(raw_entry(side.owner, side.name, key, **named))
    return sides, entries


def _place(folder: Path, name: str) -> Path:
    """Where the weights are written: a plain name, whoever wrote the record."""
    path = folder / plain_name(name)
    if path.exists() or name in (RAW_NAME, RECORD_NAME):
        raise bad_record(f"wants the weights to be called {clean(name, limit=120)}")
    return path


def _original(checkpoint: Checkpoint) -> Original:
    alone = len(checkpoint.files) == 1
    return Original(
        file=checkpoint.files[0].name if alone else WHOLE[checkpoint.format],
        format=checkpoint.format,
        container=checkpoint.container,
        sha256=checkpoint.sha256,
    )


def recorded(
    folder: Path, adapter: str | None, own: dict[str, Any]
) -> tuple[Record, str | None, dict[str, Any]]:
    """The record, with the adapter and the options to open the folder with.

    They are those of the retrofit where the caller does not ask for others.
    """
    record = Record.from_dict(read_record(folder))
    if adapter not in (None, record.adapter):
        return record, adapter, own
    return record, record.adapter, {**record.options, **own}


def restore(
    subject: AbstractSubject, checkpoint: Checkpoint, folder: Path, record: Record
) -> list[FileSide]:
    """Put the weights of an opened subject behind their forms; the same in the file's dtype."""
    raw = read_raw_tensors(folder)
    decays = _by_key(modules_of(subject))
    sides: list[FileSide] = []
    for entry in record.entries:
        key = _key(entry.key, checkpoint.tensors)
        if key not in decays:
            raise SourceError(
                "E_WEIGHTS",
                f"the retrofitted tensor {clean(key)} is no recurrent weight of the model that "
                "the folder holds",
                hint="open it with the adapter and the options of the retrofit, or write it again",
                stage="open",
            )
        decay = decays.pop(key)
        side = read_side(decay, entry, raw, checkpoint.tensors, key)
        put_behind(decay, entry, raw, side)
        sides.append(side)
    note = f"recurrent weights behind the form {clean(record.reparam)}: {len(sides)}"
    notes = (*subject.identity.notes, note)
    subject.identity = replace(subject.identity, notes=notes)
    return sides


def _key(key: str, tensors: Mapping[str, Tensor]) -> str:
    """The key, or the one that a library which saves under other names made of it."""
    if key in tensors:
        return key
    ends = {name: _common_end(name, key) for name in tensors}
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


#: Between the parts of a name; flax counts its layers behind a low line.
_BETWEEN = re.compile(r"[./]|_(?=\d+(?:[./]|\Z))")


def _common_end(one: str, other: str) -> int:
    """How many parts at their ends two names have in common."""
    pairs = zip(reversed(_BETWEEN.split(one)), reversed(_BETWEEN.split(other)), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


#: Roundings by which another machine may fold the same raw weights differently.
ROUNDINGS, FEW_ROUNDINGS = 64.0, 4.0
#: Products of larger weights overflow.
LARGEST = 1e30


@dataclass(frozen=True, slots=True, eq=False)
class FileSide:
    """A weight of the file behind its form: `owner` holds it under `name`."""

    key: str
    owner: nn.Module
    name: str

    def folded(self) -> Tensor:
        """The stored weight."""
        with torch.no_grad():
            return getattr(self.owner, self.name).detach().clone()

    def is_untouched(self) -> bool:
        """Whether no weight around a matrix moved that decides what the matrix is."""
        weight = weight_of(self.owner, self.name)
        return torch.equal(weight.matrix_of(weight.anchor), weight.witness)


def made_side(
    decay: Decay, key: str, form: AbstractReparam, stored: Tensor, tensors: Mapping[str, Tensor]
) -> FileSide:
    """The file's weight put behind a form that was fitted already."""
    owner = _owner(decay, stored, tensors)
    weight = swap(replace(decay, owner=owner), form)
    if not all(bool(torch.isfinite(start).all()) for start in weight.starts()):
        raise SourceError(
            "E_UNSUPPORTED",
            f"{clean(key)} has modes that {form.name} does not reach in {stored.dtype}, the dtype "
            "of the file",
            hint="save the checkpoint in float32 first",
            stage="retrofit",
        )
    return FileSide(key, owner, decay.name)


def read_side(
    decay: Decay,
    entry: RawEntry,
    raw: Mapping[str, Tensor],
    tensors: Mapping[str, Tensor],
    key: str,
) -> FileSide:
    """The file's weight behind the form, with the raw weights that were written beside it."""
    stored = tensors[key]
    anchor = _anchor(entry, raw, stored)
    owner = _owner(decay, anchor, tensors)
    swap(replace(decay, owner=owner), form_from_dict(entry.form))
    load_raw_tensors(owner, decay.name, entry, raw)
    side = FileSide(key, owner, decay.name)
    _require_agreement(side, stored)
    return side


def put_behind(decay: Decay, entry: RawEntry, raw: Mapping[str, Tensor], side: FileSide) -> None:
    """The same in the model that is audited, in its dtype."""
    owner, name = decay.owner, decay.name
    with torch.no_grad():
        plain = owner.get_parameter(name)
        plain.copy_(_anchor(entry, raw, plain))
    swap(decay, form_from_dict(entry.form))
    load_raw_tensors(owner, name, entry, raw)
    weight = weight_of(owner, name)
    if isinstance(weight, DenseWeight) and side.is_untouched():
        # Computed from the same weights in another dtype, it is not the same to the last bit.
        weight.witness = weight.matrix_of(weight.anchor).detach()


def _anchor(entry: RawEntry, raw: Mapping[str, Tensor], stored: Tensor) -> Tensor:
    """What the weight began with: a matrix that was trained may have parallel eigenvectors."""
    found = raw.get(f"{entry.key}.anchor")
    if found is None:
        raise _disagreement(entry.key, "has no anchor")
    if not found.is_complex() and stored.is_complex() and found.shape[-1:] == (2,):
        found = torch.view_as_complex(found.double().contiguous())
    # Finite in the dtype that it is to have: a cast may overflow.
    anchor = found.to(stored.dtype)
    if anchor.shape != stored.shape or not bool(torch.isfinite(anchor).all()):
        raise _disagreement(entry.key, "has an anchor that is not like it")
    if not bool((anchor.abs() <= LARGEST).all()):
        raise _disagreement(entry.key, "has an anchor of numbers that no weight has")
    return anchor


def _owner(decay: Decay, stored: Tensor, tensors: Mapping[str, Tensor]) -> nn.Module:
    """A module with the weight of the file, and of a matrix with those that stand around it."""
    owner = nn.Module()
    for name, parameter in decay.owner.named_parameters(recurse=False):
        if name != decay.name and isinstance(decay, DenseDecay):
            key = checkpoint_key(decay.owner, name)
            there = parameter.to(stored.dtype) if key is None else tensors[key]
            owner.register_parameter(name, nn.Parameter(there.detach().clone()))
    owner.register_parameter(decay.name, nn.Parameter(stored.detach().clone()))
    return owner


def _require_agreement(side: FileSide, stored: Tensor) -> None:
    """Refuse a file whose weight is not what the raw ones make."""
    folded, wide = side.folded(), torch.float64
    if folded.is_complex():
        wide = torch.complex128
    weight = weight_of(side.owner, side.name)
    worst = max(torch.finfo(t.dtype).eps for t in (stored, *weight.starts()))
    most = ROUNDINGS if isinstance(weight, DenseWeight) else FEW_ROUNDINGS
    basis = [getattr(weight, name, None) for name in ("basis", "inverse_basis")]
    spread = 1.0
    for matrix in basis:
        spread *= 1.0 if matrix is None else float(torch.linalg.matrix_norm(matrix.double()))
    off = (folded.to(wide) - stored.to(wide)).abs().amax()
    size = torch.maximum(stored.to(wide).abs().amax(), folded.to(wide).abs().amax())
    if not float(off) <= most * worst * max(1.0, spread) * float(size):
        raise _disagreement(side.key, f"is off by {float(off):.2g} from what its raw weights make")


def _disagreement(key: str, fact: str) -> SourceError:
    return SourceError(
        "E_CORRUPT",
        f"the model's weights and {RAW_NAME} do not agree: {clean(key, limit=200)} {fact}",
        hint="one of the two files was changed alone; write the folder again",
        stage="open",
    )


def _by_key(modules: Mapping[str, nn.Module]) -> dict[str | None, Decay]:
    """The weights that can stand behind a form, by their names in the checkpoint."""
    decays = (decay for decay in find_decays(modules) if not isinstance(decay, NoDecay))
    return {checkpoint_key(decay.owner, decay.name): decay for decay in decays}
