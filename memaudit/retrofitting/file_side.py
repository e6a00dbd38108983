"""A retrofitted weight in the dtype of its file, apart from the model that it is audited in.

Audits run in float64. What is written, and what is folded, is made of the numbers of the file.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from memaudit.errors import SourceError, clean
from memaudit.loading.saving import RAW_NAME
from memaudit.retrofitting.dense import DenseWeight
from memaudit.retrofitting.form import weight_of
from memaudit.retrofitting.form_text import form_built
from memaudit.retrofitting.putting_back import numbers_in
from memaudit.retrofitting.swapping import swap

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memaudit.reparam import AbstractReparam
    from memaudit.retrofitting.record import RawEntry
    from memaudit.retrofitting.sites import Site

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
    site: Site, key: str, form: AbstractReparam, stored: Tensor, tensors: Mapping[str, Tensor]
) -> FileSide:
    """The file's weight put behind a form that was fitted already."""
    owner = _owner(site, key, stored, tensors)
    weight = swap(replace(site.decay, owner=owner), form)
    if not all(bool(torch.isfinite(start).all()) for start in weight.starts()):
        raise SourceError(
            "E_UNSUPPORTED",
            f"{clean(key)} has modes that {form.name} does not reach in {stored.dtype}, the dtype "
            "of the file",
            hint="save the checkpoint in float32 first",
            stage="retrofit",
        )
    return FileSide(key, owner, site.decay.name)


def read_side(
    site: Site, entry: RawEntry, raw: Mapping[str, Tensor], tensors: Mapping[str, Tensor], key: str
) -> FileSide:
    """The file's weight behind the form, with the raw weights that were written beside it."""
    stored = tensors[key]
    anchor = _anchor(entry, raw, stored)
    owner = _owner(site, key, anchor, tensors)
    swap(replace(site.decay, owner=owner), form_built(entry.form))
    numbers_in(owner, site.decay.name, entry, raw)
    side = FileSide(key, owner, site.decay.name)
    _require_agreement(side, stored)
    return side


def put_behind(site: Site, entry: RawEntry, raw: Mapping[str, Tensor], side: FileSide) -> None:
    """The same in the model that is audited, in its dtype."""
    owner, name = site.decay.owner, site.decay.name
    with torch.no_grad():
        plain = owner.get_parameter(name)
        plain.copy_(_anchor(entry, raw, site.value))
    swap(site.decay, form_built(entry.form))
    numbers_in(owner, name, entry, raw)
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


def _owner(site: Site, key: str, stored: Tensor, tensors: Mapping[str, Tensor]) -> nn.Module:
    """A module with the weight of the file, and of a matrix with those that stand around it."""
    name = site.decay.name
    if site.spare is None:
        owner = nn.Module()
        owner.register_parameter(name, nn.Parameter(stored.detach().clone()))
        return owner
    owner, before = site.spare, key.removesuffix(name)
    for own, parameter in owner.named_parameters(recurse=False):
        there = stored if own == name else tensors.get(before + own)
        fits = there is not None and there.shape == parameter.shape
        given = there if there is not None and fits else parameter.detach().to(stored.dtype)
        parameter.data = given.detach().clone()
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
