"""The recurrent weights of a model that can be put into another form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatch
from typing import TYPE_CHECKING, NoReturn

import torch
from torch import Tensor, nn

from memaudit import registry
from memaudit.errors import ArgumentError, MemauditError, clean, nearest
from memaudit.interfaces import DenseDecay, DiagonalDecay, NoDecay, Role
from memaudit.numerics.signals import seeded
from memaudit.subjects.copies import MODES, ROLES, Copies, layer_name, mode_sources, roles_of
from memaudit.subjects.decays import find_decay_weight

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from memaudit.interfaces import StoredDecay
    from memaudit.subjects.copies import ModeSource


def find_decays(modules: Mapping[str, nn.Module]) -> list[StoredDecay]:
    """What all adapters know of the modules, every weight once, in the order of the model."""
    found: list[StoredDecay] = []
    for part, module in modules.items():
        order = {id(inner): k for k, inner in enumerate(module.modules())}
        stored = list(_by_adapters(module))
        stored += [d for d in own_decays(module) if not _is_known(d, stored)]
        stored.sort(key=lambda d: _place(d, order))
        found += [_inside(part, decay, module) for decay in stored]
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
    return NoDecay(f"its weight {decay.name} is that of another layer too", decay.layer, decay.cell)


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
                stored = list(registry.build("adapters", name).stored_decays(module))
        except MemauditError:
            if registry.find("adapters", name).built_in:
                raise
            continue  # an outside adapter that fails does not concern this model
        yield from stored


def _is_known(decay: StoredDecay, stored: Iterable[StoredDecay]) -> bool:
    """Whether a refusal is about a layer that an adapter knows by itself, or a part of it."""
    if not isinstance(decay, NoDecay):
        return False
    own = f".{decay.layer}."
    return any(own in f".{one.layer}." or f".{one.layer}." in own for one in stored)


def _place(decay: StoredDecay, order: Mapping[int, int]) -> int:
    return len(order) if isinstance(decay, NoDecay) else order.get(id(decay.owner), len(order))


def _inside(part: str, decay: StoredDecay, module: nn.Module) -> StoredDecay:
    """The decay with the name of the part in front; a weight of the part itself has that alone."""
    if not part:
        return decay
    own = not isinstance(decay, NoDecay) and decay.owner is module
    inside = ".".join(filter(None, (part, decay.layer)))
    return replace(decay, layer=part if own else inside)


def _once(decays: Iterable[StoredDecay]) -> list[StoredDecay]:
    """Every weight once, by the first adapter that knows it; refusals of known layers fall away."""
    found: dict[object, StoredDecay] = {}
    for decay in decays:
        if not isinstance(decay, NoDecay):
            found.setdefault((id(decay.owner), decay.name), decay)
    layers = {decay.layer for decay in found.values()}
    refused = [d for d in decays if isinstance(d, NoDecay) and d.layer not in layers]
    return [*found.values(), *{d.layer: d for d in refused}.values()]


#: How far eigenvalues may be apart to be the same: those of a matrix lose half of the digits
#: where they meet.
ALIKE = 1e-6
#: The move of a matrix under which its eigenvalues are looked at again.
MOVE = 1e-2
SILENT = f"it states a recurrent weight, but has no method {MODES}() for the modes that it makes"
UNSTATED = f"it has modes, but no weight of it is recurrent by {ROLES} or by its name"
FOREIGN = "its modes follow {name} by a form that is none of the reparameterizations"
MIXED = "none of its recurrent weights has a number for every mode, or the modes as eigenvalues"


def own_decays(module: nn.Module) -> Iterator[StoredDecay]:
    """The layers that tell their modes, by the weights that make them, and those that do not."""
    stated = dict(_stated(module))
    sources = mode_sources(module)
    if not stated and not sources:
        return
    roles = roles_of(module)
    copies = Copies(module, roles, call=_never, modes=sources)
    for layer, source in sources.items():
        cell = clean(type(source.part).__name__)
        own = {n: r for n, r in roles.items() if (r.group, r.layer) == ("recurrent", layer)}
        if own:
            yield _decay(module, copies, layer, source, own)
        else:
            yield NoDecay(UNSTATED, layer, cell)
    for layer, part in stated.items():
        if layer not in sources:
            yield NoDecay(SILENT, layer, clean(type(part).__name__))


def _decay(
    module: nn.Module,
    copies: Copies,
    layer: str,
    source: ModeSource,
    own: Mapping[str, Role],
) -> StoredDecay:
    """What makes the modes of one layer: a number each, a matrix, or nothing that is known."""
    cell = clean(type(source.part).__name__)
    named = str(getattr(source.part, "parameterization", ""))
    found = find_decay_weight(copies, layer, named=named)
    if found is not None:
        owner, name = _owner(module, found.name)
        if found.known is None:
            return NoDecay(FOREIGN.format(name=clean(found.name)), layer, cell)
        part = "real" if copies.weights[found.name].is_complex() else "all"
        return DiagonalDecay(owner, name, found.known, part, layer=layer, cell=cell)
    for path, role in own.items():
        if role.form == "matrix" and _has_modes(copies, layer, path):
            owner, name = _owner(module, path)
            return DenseDecay(owner, name, layer=layer, cell=cell)
    return NoDecay(MIXED, layer, cell)


def _stated(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The parts that state a recurrent weight, by the names of their layers."""
    for path, part in module.named_modules():
        words = getattr(part, ROLES, None)
        groups = words.values() if isinstance(words, Mapping) else ()
        if any(str(group).partition("/")[0] == "recurrent" for group in groups):
            yield layer_name(path, part), part


def _has_modes(copies: Copies, layer: str, name: str) -> bool:
    """Whether the modes are the eigenvalues of a matrix, as it is and moved a little."""
    weight = copies.weights[name]
    if weight.ndim != 2 or weight.shape[0] != weight.shape[1] or weight.is_complex():
        return False
    wide = weight.double()
    noise = torch.randn(wide.shape, generator=seeded(0), dtype=torch.float64).to(wide)
    pair = torch.stack([wide, wide + MOVE * wide.abs().mean() * noise])
    modes = copies.modes({name: pair})[layer]
    values = torch.linalg.eigvals(pair)
    return all(_alike(*two) for two in zip(modes.cpu(), values.cpu(), strict=True))


def _alike(one: Tensor, other: Tensor) -> bool:
    """Whether two lists of eigenvalues are the same in some order."""
    if one.shape != other.shape:
        return False
    apart = (one[:, None] - other[None]).abs()
    farthest = torch.maximum(apart.amin(0).amax(), apart.amin(1).amax())
    return bool(farthest <= ALIKE * other.abs().amax().clamp(min=ALIKE))


def _owner(module: nn.Module, path: str) -> tuple[nn.Module, str]:
    inside, _, name = path.rpartition(".")
    return module.get_submodule(inside), name


def _never(module: nn.Module, inputs: Tensor) -> NoReturn:
    raise NotImplementedError("only the modes of these copies are asked for")
