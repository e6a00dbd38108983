"""The numbers of one retrofitted weight, out of it and back into it, to the last bit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from memaudit.errors import SourceError, clean
from memaudit.loading.saving import RAW_NAME
from memaudit.retrofitting.dense import DenseWeight
from memaudit.retrofitting.form import weight_of
from memaudit.retrofitting.form_text import form_said
from memaudit.retrofitting.record import RawEntry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn

    from memaudit.retrofitting.form import RetrofittedWeight


def numbers_out(owner: nn.Module, name: str, key: str) -> dict[str, Tensor]:
    """`KEY.raw0`, … are the raw weights as they are, the others what they began with."""
    weight = weight_of(owner, name)
    found = {f"{key}.raw{k}": raw for k, raw in enumerate(_raws(owner, name, weight))}
    found |= {f"{key}.{buffer}": value for buffer, value in weight.named_buffers()}
    return {name: value.detach().cpu().clone() for name, value in found.items()}


def entry_of(
    owner: nn.Module, name: str, key: str, *, weight: str, layer: str, cell: str
) -> RawEntry:
    """What is to be said of a retrofitted weight."""
    inner = weight_of(owner, name)
    dense = isinstance(inner, DenseWeight)
    return RawEntry(
        key=key,
        weight=weight,
        layer=layer,
        cell=cell,
        kind="dense" if dense else "diagonal",
        form=form_said(inner.form),
        law=None if dense else form_said(inner.law),
        part="all" if dense else inner.part,
        limits=inner.limits,
    )


def numbers_in(owner: nn.Module, name: str, entry: RawEntry, tensors: Mapping[str, Tensor]) -> None:
    """Put the numbers of a file into a weight that has the same form already."""
    weight = weight_of(owner, name)
    _require_same(weight, entry)
    raws = _raws(owner, name, weight)
    given = {f"raw{k}": _taken(tensors, entry.key, f"raw{k}", raw) for k, raw in enumerate(raws)}
    kept = {n: _taken(tensors, entry.key, n, value) for n, value in weight.named_buffers()}
    _require_shapes(weight, entry, given, kept)
    with torch.no_grad():
        for k, raw in enumerate(raws):
            # An optimizer may hold the parameter: it stays the same object.
            raw.data = given[f"raw{k}"]
        for buffer, value in kept.items():
            setattr(weight, buffer, value)
    weight.limits = entry.limits


def _raws(owner: nn.Module, name: str, weight: RetrofittedWeight) -> list[nn.Parameter]:
    listed = owner.get_submodule(f"parametrizations.{name}")
    return [listed.get_parameter(f"original{k}") for k in range(weight.count)]


def _taken(tensors: Mapping[str, Tensor], key: str, end: str, now: Tensor) -> Tensor:
    """One tensor of the file, in the dtype and on the device of what is there."""
    found = tensors.get(f"{key}.{end}")
    if found is None:
        raise _damaged(key, f"{end} is missing")
    if not found.is_complex() and now.is_complex():  # complex128 is written in pairs
        if found.ndim == 0 or found.shape[-1] != 2 or found.dtype is not torch.float64:
            raise _damaged(key, f"{end} holds no complex numbers")
        found = torch.view_as_complex(found.contiguous())
    if found.is_complex() != now.is_complex() or not (
        found.is_complex() or found.is_floating_point()
    ):
        raise _damaged(key, f"{end} has the dtype {found.dtype}")
    taken = found.detach().to(now.device, now.dtype, copy=True)
    if not bool(torch.isfinite(taken).all()):
        raise _damaged(key, f"{end} holds numbers that are not finite in {now.dtype}")
    return taken


def _require_same(weight: Any, entry: RawEntry) -> None:
    """Refuse raw weights of another form."""
    dense = isinstance(weight, DenseWeight)
    here = (
        "dense" if dense else "diagonal",
        form_said(weight.form),
        None if dense else form_said(weight.law),
        "all" if dense else weight.part,
    )
    there = (entry.kind, entry.form, entry.law, entry.part)
    for what, one, other in zip(("kind", "form", "law", "part"), here, there, strict=True):
        if one != other:
            raise SourceError(
                "E_WEIGHTS",
                f"the raw weights of {clean(entry.key)} have another {what} than the model: "
                f"{clean(other, limit=150)}, not {clean(one, limit=150)}",
                hint="retrofit the model with the same form, or open the folder with memaudit.load",
                stage="open",
            )


def _require_shapes(
    weight: RetrofittedWeight, entry: RawEntry, raw: Mapping[str, Tensor], kept: dict[str, Tensor]
) -> None:
    """Refuse numbers that are not those of such a weight; a matrix may have other pairs by now."""
    wrong = [k for k in range(weight.count) if raw[f"raw{k}"].shape != kept[f"start{k}"].shape]
    fits = not wrong and kept["anchor"].shape == weight.anchor.shape
    if isinstance(weight, DenseWeight):
        singles, pairs = kept["signs"].numel(), kept["start1"].numel()
        fits = fits and kept["signs"].ndim == 1 and bool((kept["signs"].abs() == 1.0).all())
        size = singles + 2 * pairs
        square = (len(weight.basis),) * 2
        fits = fits and kept["start0"].shape == (singles + pairs,) and size == square[0]
        fits = fits and kept["start3"].shape == weight.start3.shape
        squares = ("basis", "inverse_basis", "witness", "start2")
        fits = fits and all(tuple(kept[name].shape) == square for name in squares)
    else:
        fits = fits and kept["start0"].shape == weight.start0.shape
    if not fits:
        raise _damaged(entry.key, "the shapes are not those of the weight")


def _damaged(key: str, fact: str) -> SourceError:
    return SourceError(
        "E_CORRUPT",
        f"{RAW_NAME} does not fit {clean(key, limit=200)}: {fact}",
        hint="write the folder again",
        stage="open",
    )
