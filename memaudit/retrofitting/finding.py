"""The recurrent weights of a model that can be put into another form."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatch
from typing import TYPE_CHECKING

from memaudit import registry
from memaudit.errors import ArgumentError, MemauditError, clean, nearest
from memaudit.retrofitting.own_modules import own_decays
from memaudit.stored_decay import NoDecay

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from torch import nn

    from memaudit.stored_decay import StoredDecay


def find_decays(modules: Mapping[str, nn.Module]) -> list[StoredDecay]:
    """What all adapters know of the modules, every weight once, in the order of the model."""
    found: list[StoredDecay] = []
    for part, module in modules.items():
        order = {id(inner): k for k, inner in enumerate(module.modules())}
        told = list(_by_adapters(module))
        told += [d for d in own_decays(module) if not _is_known(d, told)]
        told.sort(key=lambda d: _place(d, order))
        found += [_inside(part, decay) for decay in told]
    shared = _shared_weights(modules.values())
    return [_refused_if_shared(decay, shared) for decay in _once(found)]


def _shared_weights(modules: Iterable[nn.Module]) -> set[int]:
    """Parameters that several modules hold: behind a form they would be several."""
    holders: dict[int, set[int]] = {}
    for module in modules:
        for owner in module.modules():
            for weight in filter(lambda w: w is not None, owner._parameters.values()):
                holders.setdefault(id(weight), set()).add(id(owner))
    return {weight for weight, owners in holders.items() if len(owners) > 1}


def _refused_if_shared(decay: StoredDecay, shared: set[int]) -> StoredDecay:
    if isinstance(decay, NoDecay) or id(decay.owner._parameters.get(decay.name)) not in shared:
        return decay
    return NoDecay(decay.layer, decay.cell, f"its weight {decay.name} is that of another layer too")


def choose(decays: Sequence[StoredDecay], patterns: Sequence[str] | None) -> list[StoredDecay]:
    """Those whose layer is named, perhaps with wildcards; all when nothing is."""
    if patterns is None:
        return list(decays)
    for pattern in patterns:
        if not any(fnmatch(decay.layer, pattern) for decay in decays):
            names = sorted({decay.layer for decay in decays})
            raise ArgumentError(
                f"there is no recurrent layer {clean(pattern)!r}", hint=nearest(pattern, names)
            )
    return [d for d in decays if any(fnmatch(d.layer, pattern) for pattern in patterns)]


def _by_adapters(module: nn.Module) -> Iterable[StoredDecay]:
    for name, plugins in registry.available("adapters").items():
        if len(plugins) > 1:
            raise registry.clash(plugins)
        try:
            with registry.calling("adapters", name, "failed to look for recurrent weights"):
                told = list(registry.build("adapters", name).stored_decays(module))
        except MemauditError:
            if registry.find("adapters", name).built_in:
                raise
            continue  # a stranger's adapter that fails is none of this model's business
        yield from told


def _is_known(decay: StoredDecay, told: Iterable[StoredDecay]) -> bool:
    """Whether a refusal is about a layer that an adapter knows by itself, or a part of it."""
    if not isinstance(decay, NoDecay):
        return False
    own = f".{decay.layer}."
    return any(own in f".{one.layer}." or f".{one.layer}." in own for one in told)


def _place(decay: StoredDecay, order: Mapping[int, int]) -> int:
    return len(order) if isinstance(decay, NoDecay) else order.get(id(decay.owner), len(order))


def _inside(part: str, decay: StoredDecay) -> StoredDecay:
    return replace(decay, layer=".".join(filter(None, (part, decay.layer)))) if part else decay


def _once(decays: Iterable[StoredDecay]) -> list[StoredDecay]:
    """Every weight once, by the first adapter that tells it; refusals of told layers fall away."""
    found: dict[object, StoredDecay] = {}
    for decay in decays:
        if not isinstance(decay, NoDecay):
            found.setdefault((id(decay.owner), decay.name), decay)
    layers = {decay.layer for decay in found.values()}
    refused = [d for d in decays if isinstance(d, NoDecay) and d.layer not in layers]
    return [*found.values(), *{d.layer: d for d in refused}.values()]
