"""State dicts of retrofitted modules are those of the original format, in both directions.

A parametrized module that is saved naively comes back elsewhere with fresh recurrent weights and
only a warning. So the owner of a retrofitted weight tells the folded weight under its plain name,
and takes a plain one as well as raw ones.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from memaudit.errors import SourceError
from memaudit.retrofitting.form import RetrofittedWeight, weight_of

BEHIND = "parametrizations"
#: Where an owner keeps plain weights that are being loaded.
WAITING = "_memaudit_waiting"


def keep_plain(owner: nn.Module) -> None:
    """Give the owner its hooks, once."""
    if not any(hook is _told for hook in owner._state_dict_hooks.values()):
        owner.register_state_dict_post_hook(_told)
        owner.register_load_state_dict_pre_hook(_taken)
        owner.register_load_state_dict_post_hook(_begun)


def forget_plain(owner: nn.Module) -> None:
    """Take the hooks away."""
    for key, hook in list(owner._state_dict_hooks.items()):
        if hook is _told:
            del owner._state_dict_hooks[key]
    for key, wrapped in list(owner._load_state_dict_pre_hooks.items()):
        if getattr(wrapped, "hook", wrapped) is _taken:
            del owner._load_state_dict_pre_hooks[key]
    for key, hook in list(owner._load_state_dict_post_hooks.items()):
        if hook is _begun:
            del owner._load_state_dict_post_hooks[key]


def retrofitted_names(owner: nn.Module) -> tuple[str, ...]:
    """The names of the owner's retrofitted weights."""
    behind = owner._modules.get(BEHIND)
    names = behind.keys() if isinstance(behind, nn.ModuleDict) else ()
    return tuple(name for name in names if weight_of(owner, name) is not None)


def _told(owner: nn.Module, state: dict[str, Any], prefix: str, metadata: Any) -> None:
    """The plain weight in the place of everything behind it."""
    del metadata
    for name in retrofitted_names(owner):
        behind = f"{prefix}{BEHIND}.{name}."
        keys = [key for key in state if key.startswith(behind)]
        tracked = any(state[key].requires_grad for key in keys)
        for key in keys:
            del state[key]
        with torch.set_grad_enabled(tracked):
            state[f"{prefix}{name}"] = getattr(owner, name)


def _taken(owner: nn.Module, state: dict[str, Any], prefix: str, metadata: Any, *rest: Any) -> None:
    """Keep a plain weight until the others of the owner are there; the raw ones stay for now."""
    del metadata
    errors = rest[-1]
    for name in retrofitted_names(owner):
        plain = state.pop(f"{prefix}{name}", None)
        behind = f"{prefix}{BEHIND}.{name}."
        if plain is None or any(key.startswith(behind) for key in state):
            continue
        shape = tuple(weight_of(owner, name).anchor.shape)
        if tuple(plain.shape) == shape:
            owner.__dict__.setdefault(WAITING, {})[name] = plain
        else:
            errors.append(f"size mismatch for {prefix}{name}: {tuple(plain.shape)}, not {shape}")
        for key, value in owner.get_submodule(f"{BEHIND}.{name}").state_dict().items():
            state[behind + key] = value.clone()


def _begun(owner: nn.Module, incompatible: Any) -> None:
    """Raw weights from the plain ones; of a GRU the biases, too, say what these are."""
    del incompatible
    for name, plain in owner.__dict__.pop(WAITING, {}).items():
        if not _is_the_same(getattr(owner, name), plain):
            weight, listed = weight_of(owner, name), owner.get_submodule(f"{BEHIND}.{name}")
            _require_reached(weight, name, plain)
            _begin_anew(weight, listed, plain)


def _is_the_same(now: Tensor, plain: Tensor) -> bool:
    """Whether the weight is there already: raw weights have digits that it does not tell."""
    given = plain.to(now.device, now.dtype)
    return now.shape == given.shape and torch.equal(now.detach(), given)


def _require_reached(weight: RetrofittedWeight, name: str, plain: Tensor) -> None:
    if not weight.reaches(plain.detach().to(weight.anchor.device)):
        raise SourceError(
            "E_WEIGHTS",
            f"the weight {name} that is loaded has modes that {weight.told} does not reach",
            hint="memaudit.fold(model) first, load, and retrofit again",
            stage="retrofit",
        )


def _begin_anew(weight: RetrofittedWeight, listed: nn.Module, plain: Tensor) -> None:
    anchor = weight.anchor
    raw = weight.right_inverse(plain.detach().to(anchor.device, anchor.dtype))
    with torch.no_grad():
        for k, value in enumerate(raw):
            # Another matrix may have another number of complex pairs.
            listed.get_parameter(f"original{k}").data = value
