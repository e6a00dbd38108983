"""One stored weight put behind a form, and put back."""

from __future__ import annotations

import copy
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.utils import parametrize

from memaudit.retrofitting.dense import DenseWeight
from memaudit.retrofitting.diagonal import DiagonalWeight
from memaudit.retrofitting.plain_state import forget_plain, keep_plain, retrofitted_names
from memaudit.stored_decay import DiagonalDecay

if TYPE_CHECKING:
    from memaudit.reparam import AbstractReparam
    from memaudit.retrofitting.form import RetrofittedWeight
    from memaudit.stored_decay import DenseDecay

#: Where an owner keeps the order of its weights while some of them stand behind a form.
ORDER = "_memaudit_order"


def swap(decay: DiagonalDecay | DenseDecay, form: AbstractReparam) -> RetrofittedWeight:
    """Put the weight behind the form."""
    owner, name = decay.owner, decay.name
    stored = owner.get_parameter(name).detach()
    weight: RetrofittedWeight
    if isinstance(decay, DiagonalDecay):
        weight = DiagonalWeight(decay, form, stored)
    else:
        weight = DenseWeight(decay, form, stored)
    if not retrofitted_names(owner):
        owner.__dict__[ORDER] = tuple(owner._parameters)
    parametrize.register_parametrization(owner, name, weight, unsafe=True)
    keep_plain(owner)
    if isinstance(owner, nn.RNNBase):
        # The class was made by torch for this owner alone.
        type(owner).__deepcopy__ = _copied  # type: ignore[attr-defined]
    return weight


def unswap(owner: nn.Module, name: str) -> None:
    """Put the weight back as a plain parameter, in its old place among the others."""
    listed = owner.get_submodule(f"parametrizations.{name}")
    trained = any(raw.requires_grad for raw in listed.parameters())
    with torch.no_grad():
        value = getattr(owner, name).detach().clone()
    _take_away(owner, name)
    # By assignment: torch's recurrent layers take note of their weights by it.
    setattr(owner, name, nn.Parameter(value, requires_grad=trained))
    if not retrofitted_names(owner):
        forget_plain(owner)
        _reorder(owner)


def _take_away(owner: nn.Module, name: str) -> None:
    """Remove a parametrization from the owner alone: a copy of it has the same class."""
    behind = owner.get_submodule("parametrizations")
    assert isinstance(behind, nn.ModuleDict)
    kind = type(owner)
    del behind[name]
    if len(behind):
        own = {key: value for key, value in vars(kind).items() if key != name}
        owner.__class__ = type(kind.__name__, kind.__bases__, own)  # type: ignore[assignment]
    else:
        delattr(owner, "parametrizations")
        owner.__class__ = kind.__bases__[0]


def _copied(owner: nn.RNNBase, memo: dict[int, Any]) -> nn.RNNBase:
    """A copy of a recurrent layer of torch.

    It keeps a list of the weights that it ran with last; those that a form made are no leaves of
    the graph, and refuse to be copied. The copy makes its own.
    """
    memo[id(owner._flat_weights)] = []
    twin = owner.__new__(type(owner))
    memo[id(owner)] = twin
    twin.__dict__ = copy.deepcopy(owner.__dict__, memo)
    with torch.no_grad():
        twin._init_flat_weights()
    return twin


def _reorder(owner: nn.Module) -> None:
    order = owner.__dict__.pop(ORDER, ())
    own = owner._parameters
    names = [name for name in order if name in own] + [name for name in own if name not in order]
    kept = OrderedDict((name, own[name]) for name in names)
    own.clear()
    own.update(kept)
