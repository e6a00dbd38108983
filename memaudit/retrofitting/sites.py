"""Which tensor of a checkpoint became which weight of the model that was made of it."""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from memaudit.errors import SourceError, clean
from memaudit.retrofitting.finding import find_decays
from memaudit.stored_decay import DenseDecay, NoDecay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from memaudit.stored_decay import DiagonalDecay

_T = TypeVar("_T")
#: Between the parts of a name; flax counts its layers behind a low line.
_BETWEEN = re.compile(r"[./]|_(?=\d+(?:[./]|\Z))")


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """A weight of a model that can stand behind a form, before it does.

    `name` is its plain name in the model, `value` what it was. `spare` is a plain copy of the
    owner of a matrix, whose other weights may be needed; None for a diagonal.
    """

    name: str
    decay: DiagonalDecay | DenseDecay
    value: Tensor
    spare: nn.Module | None


def find_sites(modules: Mapping[str, nn.Module]) -> list[Site]:
    """All of them, in the order of the model."""
    found = [decay for decay in find_decays(modules) if not isinstance(decay, NoDecay)]
    paths = {
        id(inner): ".".join(filter(None, (part, path)))
        for part, module in modules.items()
        for path, inner in module.named_modules()
    }
    return [_site(decay, paths.get(id(decay.owner), "")) for decay in found]


def key_of(site: Site, tensors: Mapping[str, Tensor]) -> str:
    """The tensor that the weight was made of: the same numbers, shape and last name."""
    alike = [key for key, tensor in tensors.items() if _is_made_of(site, key, tensor)]
    best = _nearest(alike, lambda key: common_end(key, site.name))
    if len(best) == 1:
        return best[0]
    if not best:
        fact = f"no tensor of the checkpoint is the weight {clean(site.name)} as it is"
    else:
        names = " and ".join(clean(key, limit=100) for key in best[:2])
        fact = f"the weight {clean(site.name)} may be {names} of the checkpoint: they are equal"
    raise SourceError(
        "E_UNSUPPORTED",
        f"{fact}, so a retrofit cannot be written",
        hint="retrofit the model in Python: memaudit.retrofit(model)",
        stage="retrofit",
    )


def site_of(key: str, weight: str, tensor: Tensor, sites: Sequence[Site]) -> Site:
    """The weight that was made of a tensor, which was called `weight` in another model once."""
    alike = [site for site in sites if _is_made_of(site, key, tensor)]
    best = _nearest(alike, lambda site: (common_end(site.name, weight), common_end(site.name, key)))
    if len(best) == 1:
        return best[0]
    fact = "is no recurrent weight" if not best else "is more than one recurrent weight"
    raise SourceError(
        "E_WEIGHTS",
        f"the retrofitted tensor {clean(key)} {fact} of the model that the folder holds",
        hint="open it with the adapter and the options of the retrofit, or write it again",
        stage="open",
    )


def parts_of(name: str) -> tuple[str, ...]:
    """The parts of a name, whatever stands between them."""
    return tuple(_BETWEEN.split(name))


def common_end(one: str, other: str) -> int:
    """How many parts at their ends two names have in common."""
    count = 0
    for a, b in zip(reversed(parts_of(one)), reversed(parts_of(other)), strict=False):
        if a != b:
            break
        count += 1
    return count


def _site(decay: DiagonalDecay | DenseDecay, path: str) -> Site:
    value = decay.owner.get_parameter(decay.name).detach().clone()
    spare = copy.deepcopy(decay.owner) if isinstance(decay, DenseDecay) else None
    return Site(f"{path}.{decay.name}" if path else decay.name, decay, value, spare)


def _is_made_of(site: Site, key: str, tensor: Tensor) -> bool:
    value = site.value
    if parts_of(key)[-1] != parts_of(site.name)[-1] or tensor.shape != value.shape:
        return False
    if tensor.is_complex() != value.is_complex():
        return False
    return torch.equal(tensor.to(value.dtype), value.cpu())


def _nearest(found: Iterable[_T], nearness: Callable[[_T], Any]) -> list[_T]:
    """Those of the greatest nearness."""
    ranked = [(nearness(one), one) for one in found]
    most = max((rank for rank, _ in ranked), default=None)
    return [one for rank, one in ranked if rank == most]
