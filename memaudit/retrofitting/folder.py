"""The folder of a retrofit: the plain checkpoint, and the raw weights beside it."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
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
    RECORD_NAME,
    WRITTEN_BY,
    copy_companions,
    is_retrofit,
    new_folder,
    require_vacant,
    write_weights,
)
from memaudit.retrofitting.finding import find_decays
from memaudit.retrofitting.model import modules_of, retrofit_weights
from memaudit.retrofitting.planning import Order
from memaudit.retrofitting.record import (
    NEVER_RECORDED,
    RAW_NAME,
    Original,
    RawEntry,
    RetrofitConfig,
    bad_record,
    load_raw_tensors,
    make_form,
    raw_entry,
    raw_tensors,
    read_config,
    read_raw_tensors,
    read_record,
    write_retrofit_files,
)
from memaudit.retrofitting.weights import DenseWeight, swap, weight_of
from memaudit.rules import BEHIND_FORM

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memaudit.interfaces import AbstractSubject, DiagonalDecay
    from memaudit.loading.checkpoint import Checkpoint
    from memaudit.retrofitting.result import Retrofit
    from memaudit.retrofitting.weights import RetrofittedWeight

    Decay = DiagonalDecay | DenseDecay

PLAIN = "model.safetensors"
#: What several shards become again: one file.
WHOLE = {"safetensors": PLAIN, "torch": "pytorch_model.bin", "torch-legacy": "pytorch_model.bin"}
#: Between the parts of a name; flax counts its layers behind a low line.
_BETWEEN = re.compile(r"[./]|_(?=\d+(?:[./]|\Z))")
#: Roundings by which another machine may fold the same raw weights differently.
ROUNDINGS, FEW_ROUNDINGS = 64.0, 4.0
#: Products of larger weights overflow.
LARGEST = 1e30


def retrofit_source(
    source: str | Path,
    out: str | Path,
    reparam: str = "best",
    *,
    project: bool = False,
    layers: Sequence[str] | None = None,
    radius: bool = False,
    constants: dict[str, Any] | None = None,
    **options: Any,
) -> Retrofit:
    """Retrofit a checkpoint and write the folder; `options` are those of `memaudit.load`.

    The folder holds the source's tensors under their own names and in their own dtypes, so that
    whatever opens the source opens the folder too. Nothing is written unless all of it is.
    """
    out = Path(out)
    require_vacant(out)
    if is_retrofit(Path(source)):
        raise ArgumentError(
            "this folder is retrofitted already",
            hint=f"memaudit fold {clean(source)} --out DIR turns it back, if you want another form",
            source=source,
        )
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
    order = Order(reparam, constants or {}, project)
    done, decays = retrofit_weights(opened.subject, order, layers=layers, radius=radius)
    if not done.layers:
        reasons = "; ".join(f"{one.layer}: {one.reason}" for one in done.refused[:3])
        more = f"; and {len(done.refused) - 3} more" if len(done.refused) > 3 else ""
        hint = "scan it to see what it does"
        if any(one.reachable for one in done.refused):
            words = ["memaudit", "retrofit", clean(source), "--reparam", reparam]
            command = shlex.join([*words, "--project", "--out", clean(out)])
            hint = f"`{command}` moves them inside, which makes another model of it"
        raise SourceError(
            "E_UNSUPPORTED",
            f"no layer could be retrofitted: {clean(reasons, limit=1000)}{more}",
            hint=hint,
            stage="retrofit",
        )
    checkpoint = where.checkpoint
    tensors, raw, entries = _stored_forms(done, decays, checkpoint)
    alone = len(checkpoint.files) == 1
    config = RetrofitConfig(
        reparam=done.reparam,
        weights=entries,
        refused=done.refused,
        source=where.text,
        adapter=opened.subject.identity.adapter,
        options={name: value for name, value in options.items() if name not in NEVER_RECORDED},
        original=Original(
            file=checkpoint.files[0].name if alone else WHOLE[checkpoint.format],
            format=checkpoint.format,
            container=checkpoint.container,
            sha256=checkpoint.sha256,
        ),
    )
    with new_folder(out) as folder:
        plain = {**checkpoint.tensors, **tensors}
        write_weights(folder / PLAIN, plain, {**WRITTEN_BY, **checkpoint.metadata})
        write_retrofit_files(folder, config.to_dict(), raw)
        copy_companions(checkpoint, folder)
    return done


def fold_folder(folder: str | Path, out: str | Path) -> tuple[str, ...]:
    """Write the original format of a retrofit folder; the keys of the weights that were folded.

    The folder holds the plain weights, trained or not; opening it compares them with the raw ones.
    """
    folder, out = Path(folder), Path(out)
    config = read_config(read_record(folder))
    require_vacant(out)
    opened = open_source(folder)
    assert opened.source is not None
    checkpoint = opened.source.checkpoint
    keys = tuple(_key(key, checkpoint.tensors) for key in config.weights)
    original = config.original
    with new_folder(out) as made:
        copy_companions(checkpoint, made)
        path = made / plain_name(original.file)
        if path.exists() or original.file in (RAW_NAME, RECORD_NAME):
            raise bad_record(f"wants the weights to be called {clean(original.file, limit=120)}")
        write_weights(
            path,
            checkpoint.tensors,
            checkpoint.metadata,
            file_format=original.format,
            container=original.container,
        )
    return keys


def restore(subject: AbstractSubject, checkpoint: Checkpoint, config: RetrofitConfig) -> None:
    """Put the weights of a subject from a retrofit folder behind their forms."""
    raw = read_raw_tensors(checkpoint.path)
    decays = {
        checkpoint_key(decay.owner, decay.name): decay
        for decay in find_decays(modules_of(subject))
        if not isinstance(decay, NoDecay)
    }
    for written, entry in config.weights.items():
        key = _key(written, checkpoint.tensors)
        if key not in decays:
            raise SourceError(
                "E_WEIGHTS",
                f"the retrofitted tensor {clean(key)} is no recurrent weight of the model that "
                "the folder holds",
                hint="open it with the adapter and the options of the retrofit, or write it again",
                stage="open",
            )
        _put_behind(decays.pop(key), entry, raw, key, written, checkpoint.tensors)
    note = f"{BEHIND_FORM} {clean(config.reparam)}: {len(config.weights)}"
    notes = (*subject.identity.notes, note)
    subject.identity = replace(subject.identity, notes=notes)


def _stored_forms(
    done: Retrofit, decays: Sequence[Decay], checkpoint: Checkpoint
) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, RawEntry]]:
    """The retrofitted weights in the dtype of the file: plain, raw, and described."""
    plain: dict[str, Tensor] = {}
    raw: dict[str, Tensor] = {}
    entries: dict[str, RawEntry] = {}
    for layer, decay in zip(done.layers, decays, strict=True):
        name, key = decay.name, checkpoint_key(decay.owner, decay.name)
        if key is None:
            raise SourceError(
                "E_UNSUPPORTED",
                f"no tensor of the checkpoint is the weight {clean(layer.weight)} as it is, so a "
                "retrofit cannot be written",
                hint="retrofit the model in Python: memaudit.retrofit(model)",
                stage="retrofit",
            )
        if key in plain:
            raise ArgumentError(
                f"two layers have the one weight {clean(key)}",
                hint="retrofit one of them with --layer",
            )
        weight, stored = weight_of(decay.owner, name), checkpoint.tensors[key]
        if layer.moved:
            stored = weight.anchor.detach().cpu().to(stored.dtype)
        owner = _owner(decay, stored, checkpoint.tensors)
        inside = swap(replace(decay, owner=owner), weight.form)
        if not all(bool(torch.isfinite(start).all()) for start in inside.starts()):
            raise SourceError(
                "E_UNSUPPORTED",
                f"{clean(key)} has modes that {weight.form.name} does not reach in "
                f"{stored.dtype}, the dtype of the file",
                hint="save the checkpoint in float32 first",
                stage="retrofit",
            )
        plain[key] = getattr(owner, name).detach()
        raw |= raw_tensors(owner, name, key)
        named = {"weight": layer.weight, "layer": layer.layer, "cell": layer.cell}
        entries[key] = raw_entry(owner, name, **named)
    return plain, raw, entries


def _put_behind(
    decay: Decay,
    entry: RawEntry,
    raw: Mapping[str, Tensor],
    key: str,
    written: str,
    tensors: Mapping[str, Tensor],
) -> None:
    """Put a weight of the model behind its form, if the raw weights make the plain one."""
    form, name, stored = make_form(entry.form), decay.name, tensors[key]
    file = _owner(decay, _anchor(written, raw, stored), tensors)
    in_file = swap(replace(decay, owner=file), form)
    load_raw_tensors(file, name, written, entry, raw)
    _require_agreement(key, getattr(file, name).detach(), stored, in_file)
    with torch.no_grad():
        plain = decay.owner.get_parameter(name)
        plain.copy_(_anchor(written, raw, plain))
    weight = swap(decay, form)
    load_raw_tensors(decay.owner, name, written, entry, raw)
    if (
        isinstance(weight, DenseWeight)
        and isinstance(in_file, DenseWeight)
        and torch.equal(in_file.matrix_of(in_file.anchor), in_file.witness)
    ):
        # Computed from the same weights in another dtype, it is not the same to the last bit.
        weight.witness = weight.matrix_of(weight.anchor).detach()


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


def _common_end(one: str, other: str) -> int:
    """How many parts at their ends two names have in common."""
    pairs = zip(reversed(_BETWEEN.split(one)), reversed(_BETWEEN.split(other)), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _anchor(key: str, raw: Mapping[str, Tensor], stored: Tensor) -> Tensor:
    """What the weight began with: a matrix that was trained may have parallel eigenvectors."""
    found = raw.get(f"{key}.anchor")
    if found is None:
        raise _disagreement(key, "has no anchor")
    if not found.is_complex() and stored.is_complex() and found.shape[-1:] == (2,):
        found = torch.view_as_complex(found.double().contiguous())
    # Finite in the dtype that it is to have: a cast may overflow.
    anchor = found.to(stored.dtype)
    if anchor.shape != stored.shape or not bool(torch.isfinite(anchor).all()):
        raise _disagreement(key, "has an anchor that is not like it")
    if not bool((anchor.abs() <= LARGEST).all()):
        raise _disagreement(key, "has an anchor of numbers that no weight has")
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


def _require_agreement(key: str, folded: Tensor, stored: Tensor, weight: RetrofittedWeight) -> None:
    """Refuse a file whose weight is not what the raw ones make."""
    wide = torch.complex128 if folded.is_complex() else torch.float64
    worst = max(torch.finfo(t.dtype).eps for t in (stored, *weight.starts()))
    allowed = FEW_ROUNDINGS * worst
    if isinstance(weight, DenseWeight):
        basis, inverse = weight.basis.double(), weight.inverse_basis.double()
        spread = torch.linalg.matrix_norm(basis) * torch.linalg.matrix_norm(inverse)
        allowed = ROUNDINGS * worst * max(1.0, float(spread))
    off = (folded.to(wide) - stored.to(wide)).abs().amax()
    size = torch.maximum(stored.to(wide).abs().amax(), folded.to(wide).abs().amax())
    if not float(off) <= allowed * float(size):
        raise _disagreement(key, f"is off by {float(off):.2g} from what its raw weights make")


def _disagreement(key: str, fact: str) -> SourceError:
    return SourceError(
        "E_CORRUPT",
        f"the model's weights and {RAW_NAME} do not agree: {clean(key, limit=200)} {fact}",
        hint="one of the two files was changed alone; write the folder again",
        stage="open",
    )
