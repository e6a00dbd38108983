"""Recurrent layers whose weights stand behind a parametrization of memaudit."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from memaudit.perturbable import plain_name


def told_form(owner: nn.Module, name: str) -> str | None:
    """What a retrofit says about the form of a weight; None for a weight that has none."""
    if not parametrize.is_parametrized(owner, name):
        return None
    told = getattr(owner.parametrizations[name][0], "told", None)  # type: ignore[index]
    return None if told is None else str(told)


def is_retrofitted(owner: nn.Module, name: str | None = None) -> bool:
    """Whether a retrofit has changed that weight, or any weight, of a layer."""
    if name is not None:
        return told_form(owner, name) is not None
    return any(told_form(owner, own) is not None for own in made_weights(owner))


def made_weights(owner: nn.Module) -> tuple[str, ...]:
    """The weights of a layer that are made from raw ones."""
    if not parametrize.is_parametrized(owner):
        return ()
    return tuple(owner.parametrizations)  # type: ignore[arg-type]


def plain_weights(module: nn.Module) -> dict[str, Tensor]:
    """The weights that a module runs with, by their plain names; made ones are made now."""
    names = dict.fromkeys(plain_name(name) for name, _ in module.named_parameters())
    found: dict[str, Tensor] = {}
    for name in names:
        path, _, own = name.rpartition(".")
        found[name] = getattr(module.get_submodule(path), own).detach()
    return found


def can_stay(layer: nn.Module, dtype: torch.dtype | None) -> bool:
    """Whether a copy in that dtype can keep raw weights: they have single precision at least."""
    if not isinstance(layer, nn.RNNBase) or not is_retrofitted(layer):
        return False
    return dtype in (None, _dtype(layer)) or torch.finfo(dtype).bits >= 32


def twin(layer: nn.RNNBase, dtype: torch.dtype) -> nn.RNNBase:
    """A copy that keeps the raw weights: batch first, eval mode, no gradients.

    The list of weights for the fused kernels stays behind: what was made from raw weights while
    gradients were kept cannot be copied, and it is made again anyway.
    """
    made = copy.deepcopy(layer, {id(layer._flat_weights): []}).eval().requires_grad_(False)
    made._init_flat_weights()
    made.batch_first = True
    if dtype != _dtype(layer):
        begun = _begun(layer)
        made.to(dtype)
        for name, stored in begun.items():
            # What was rounded in one dtype is not what the other would have begun with.
            made.parametrizations[name].right_inverse(stored.to(dtype))  # type: ignore[index]
    return made


def _begun(layer: nn.Module) -> dict[str, Tensor]:
    """The retrofitted weights that are still those which they began with."""
    found: dict[str, Tensor] = {}
    for name in made_weights(layer):
        anchor = getattr(layer.parametrizations[name][0], "anchor", None)  # type: ignore[index]
        value = getattr(layer, name).detach()
        if isinstance(anchor, Tensor) and torch.equal(value, anchor):
            found[name] = value
    return found


def _dtype(layer: nn.RNNBase) -> torch.dtype:
    return getattr(layer, layer._flat_weights_names[0]).dtype
