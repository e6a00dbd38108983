"""The folder of a retrofit: the plain checkpoint, and the raw weights beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from memaudit.errors import ArgumentError, SourceError, clean
from memaudit.loading.files import plain_name
from memaudit.loading.saving import (
    RAW_NAME,
    RECORD_NAME,
    WRITTEN_BY,
    copy_companions,
    is_retrofit,
    no_retrofit,
    require_vacant,
    staged,
    write_retrofit_files,
    write_safetensors,
    write_weights,
)
from memaudit.opening import Opened, open_source
from memaudit.retrofitting.checking import require_plain
from memaudit.retrofitting.file_side import FileSide, made_side
from memaudit.retrofitting.form import weight_of
from memaudit.retrofitting.form_text import bad_record
from memaudit.retrofitting.model import modules_of, retrofit
from memaudit.retrofitting.putting_back import entry_of, numbers_out
from memaudit.retrofitting.raw_file import read_raw as load_raw
from memaudit.retrofitting.raw_file import write_raw
from memaudit.retrofitting.record import NEVER_RECORDED, Original, Record
from memaudit.retrofitting.restoring import record_of, restore
from memaudit.retrofitting.sites import find_sites, key_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from memaudit.loading.checkpoint import Checkpoint
    from memaudit.retrofitting.record import RawEntry
    from memaudit.retrofitting.result import Retrofit
    from memaudit.retrofitting.sites import Site

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
    sites = find_sites(modules)
    given = dict(constants or {})
    done = retrofit(opened.subject, reparam, project=project, layers=layers, radius=radius, **given)
    if not done.layers:
        raise _nothing(done)
    sides, entries = _written_sides(done, sites, where.checkpoint)
    record = Record(
        reparam=done.reparam,
        entries=tuple(entries),
        refused=done.refused,
        source=where.text,
        adapter=opened.subject.identity.adapter,
        options=_own(options),
        original=_original(where.checkpoint),
    )
    with staged(out) as folder:
        _write(folder, where.checkpoint, sides, record)
    return done


def fold_folder(folder: str | Path, out: str | Path, **options: Any) -> tuple[str, ...]:
    """Write the original format of a retrofit folder; the keys of the weights that were folded.

    What was not trained is that of the source, bit by bit.
    """
    folder, out = Path(folder), Path(out)
    if not is_retrofit(folder):
        raise no_retrofit(folder)
    require_vacant(out)
    record = record_of(folder)
    opened, sides = _restored(folder, record, options)
    checkpoint = _checkpoint(opened)
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


def _write(folder: Path, checkpoint: Checkpoint, sides: list[FileSide], record: Record) -> None:
    tensors = {**checkpoint.tensors, **{side.key: side.folded() for side in sides}}
    raw = {}
    for side in sides:
        raw |= numbers_out(side.owner, side.name, side.key)
    write_safetensors(folder / PLAIN, tensors, metadata={**WRITTEN_BY, **checkpoint.metadata})
    write_retrofit_files(folder, record.to_dict(), raw)
    copy_companions(checkpoint, folder)


def _written_sides(
    done: Retrofit, sites: Sequence[Site], checkpoint: Checkpoint
) -> tuple[list[FileSide], list[RawEntry]]:
    """Every retrofitted weight in the dtype of the file, and what is to be said of it."""
    by_name = {site.name: site for site in sites}
    sides: list[FileSide] = []
    entries: list[RawEntry] = []
    for layer in done.layers:
        site = by_name[layer.weight]
        key = key_of(site, checkpoint.tensors)
        if any(side.key == key for side in sides):
            raise _twice(key)
        inner, stored = weight_of(site.decay.owner, site.decay.name), checkpoint.tensors[key]
        if layer.moved:
            stored = inner.anchor.detach().cpu().to(stored.dtype)
        side = made_side(site, key, inner.form, stored, checkpoint.tensors)
        named = {"weight": layer.weight, "layer": layer.layer, "cell": layer.cell}
        sides.append(side)
        entries.append(entry_of(side.owner, side.name, key, **named))
    return sides, entries


def _restored(
    folder: Path, record: Record, options: dict[str, Any]
) -> tuple[Opened, list[FileSide]]:
    said = {"adapter": record.adapter, **record.options, **options}
    opened = open_source(folder, restored=False, **said)
    return opened, restore(opened.subject, _checkpoint(opened), folder, record)


def _checkpoint(opened: Opened) -> Checkpoint:
    assert opened.source is not None
    return opened.source.checkpoint


def _place(folder: Path, name: str) -> Path:
    """Where the weights are written: a plain name, as strangers may have written it."""
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


def _own(options: dict[str, Any]) -> dict[str, Any]:
    """The adapter's own options, which are needed to open the folder again."""
    return {name: value for name, value in options.items() if name not in NEVER_RECORDED}


def _nothing(done: Retrofit) -> SourceError:
    told = "; ".join(f"{one.layer}: {one.reason}" for one in done.refused[:3])
    reach = any("out of reach" in one.reason for one in done.refused)
    more = f"; and {len(done.refused) - 3} more" if len(done.refused) > 3 else ""
    return SourceError(
        "E_UNSUPPORTED",
        f"no layer could be retrofitted: {clean(told, limit=800)}{more}",
        hint="try another --reparam, or --project" if reach else "scan it to see what it does",
        stage="retrofit",
    )


def _twice(key: str) -> ArgumentError:
    return ArgumentError(
        f"two layers have the one weight {clean(key)}", hint="retrofit one of them with --layer"
    )
