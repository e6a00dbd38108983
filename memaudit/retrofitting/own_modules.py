"""Modules that no adapter knows, but which say themselves what their recurrent weights are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn

import torch
from torch import Tensor, nn

from memaudit.errors import clean
from memaudit.gradient.decay import find_decay_weight
from memaudit.numerics.signals import seeded
from memaudit.perturbable import Role
from memaudit.stored_decay import DenseDecay, DiagonalDecay, NoDecay
from memaudit.subjects.copies import MODES, ROLES, layer_name, mode_sources, roles_of
from memaudit.subjects.copies import Copies as ModuleEnsemble

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memaudit.stored_decay import StoredDecay
    from memaudit.subjects.copies import ModeSource

#: How far eigenvalues may be apart to be the same: those of a matrix lose half of the digits
#: where they meet.
ALIKE = 1e-6
#: The move of a matrix under which its eigenvalues are looked at again.
MOVE = 1e-2
SILENT = f"it states a recurrent weight, but has no method {MODES}() to tell what that makes"
UNSTATED = f"it tells its modes, but no weight of it is recurrent by {ROLES} or by its name"
FOREIGN = "its modes follow {name} by a form that is none of the reparameterizations"
MIXED = "none of its recurrent weights has a number for every mode, or the modes as eigenvalues"


def own_decays(module: nn.Module) -> Iterator[StoredDecay]:
    """The layers that tell their modes, by the weights that make them, and those that do not."""
    stated = dict(_stated(module))
    sources = mode_sources(module)
    if not stated and not sources:
        return
    roles = roles_of(module)
    copies = ModuleEnsemble(module, roles, call=_never, modes=sources)
    for layer, source in sources.items():
        cell = clean(type(source.part).__name__)
        own = {n: r for n, r in roles.items() if (r.group, r.layer) == ("recurrent", layer)}
        if own:
            yield _decay(module, copies, layer, source, own)
        else:
            yield NoDecay(layer, cell, UNSTATED)
    for layer, part in stated.items():
        if layer not in sources:
            yield NoDecay(layer, clean(type(part).__name__), SILENT)


def _decay(
    module: nn.Module,
    copies: ModuleEnsemble,
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
            return NoDecay(layer, cell, FOREIGN.format(name=clean(found.name)))
        part = "real" if copies.weights[found.name].is_complex() else "all"
        return DiagonalDecay(layer, cell, owner, name, found.known, part)
    for path, role in own.items():
        if role.form == "matrix" and _has_modes(copies, layer, path):
            owner, name = _owner(module, path)
            return DenseDecay(layer, cell, owner, name, _whole, _nothing, _as_it_is)
    return NoDecay(layer, cell, MIXED)


def _stated(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The parts that state a recurrent weight, by the names of their layers."""
    for path, part in module.named_modules():
        words = getattr(part, ROLES, None)
        groups = words.values() if isinstance(words, Mapping) else ()
        if any(str(group).partition("/")[0] == "recurrent" for group in groups):
            yield layer_name(path, part), part


def _has_modes(copies: ModuleEnsemble, layer: str, name: str) -> bool:
    """Whether the modes are the eigenvalues of a matrix, as it is and moved a little."""
    weight = copies.weights[name]
    if weight.ndim != 2 or weight.shape[0] != weight.shape[1] or weight.is_complex():
        return False
    wide = weight.double()
    noise = torch.randn(wide.shape, generator=seeded(0), dtype=torch.float64).to(wide)
    pair = torch.stack([wide, wide + MOVE * wide.abs().mean() * noise])
    modes = copies.modes({name: pair})[layer]
    values = torch.linalg.eigvals(pair)
    return all(_alike(one, other) for one, other in zip(modes, values, strict=True))


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


def _whole(owner: nn.Module, stored: Tensor) -> Tensor:
    del owner
    return stored


def _nothing(stored: Tensor) -> Tensor:
    return stored[:0]


def _as_it_is(owner: nn.Module, matrix: Tensor, rest: Tensor) -> Tensor:
    del owner, rest
    return matrix
