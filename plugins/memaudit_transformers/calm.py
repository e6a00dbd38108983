"""A model that is run leaves no trace on itself: state, flags and settings are put back."""

from __future__ import annotations

import copy
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Where a module keeps its tensors and children; their own contents are looked at instead.
_STRUCTURE = ("_parameters", "_modules", "_buffers")


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """While open, the model may keep state on its modules; afterwards it is as it was.

    RecurrentGemma leaves its state behind, rotary embeddings grow with the longest sequence seen,
    and `eval` changes flags: none of it may reach the next call, or the caller.
    """
    before = [(m, dict(vars(m)), dict(m._buffers)) for m in model.modules()]
    try:
        yield
    finally:
        for module, attributes, buffers in before:
            _restore(vars(module), attributes, skip=_STRUCTURE)
            _restore(module._buffers, buffers)


@contextmanager
def audited(model: nn.Module, dtype: torch.dtype, *, pooled: bool) -> Iterator[None]:
    """While open, the settings of the model are those of an audit."""
    changed: list[tuple[dict[str, Any], dict[str, Any]]] = []
    try:
        for config in _configs(model):
            values = vars(config)
            changed.append((values, dict(values)))
            values.update(_settings(values, model, dtype, pooled=pooled))
        model.eval()
        yield
    finally:
        for values, before in changed:
            _restore(values, before)


def copied(model: nn.Module) -> nn.Module:
    """A copy of a model, without states that a call with gradients may have left on it."""
    kept = [
        (module, name, value)
        for module in model.modules()
        for name, value in vars(module).items()
        if isinstance(value, torch.Tensor) and value.grad_fn is not None
    ]
    try:
        for module, name, _ in kept:
            vars(module)[name] = None
        return copy.deepcopy(model)
    finally:
        for module, name, value in kept:
            vars(module)[name] = value


def is_rescaled(model: nn.Module) -> bool:
    """Whether RWKV has divided its weights for half precision, as it does when it is run."""
    return bool(getattr(_owner(model), "layers_are_rescaled", False))


def undo_rescaling(model: nn.Module) -> None:
    """Give RWKV the weights back that it was trained with."""
    owner: Any = _owner(model)
    training = owner.training
    owner.training = True  # the library multiplies in training and divides otherwise
    owner._rescale_layers()
    owner.training = training


def _settings(
    values: dict[str, Any], model: nn.Module, dtype: torch.dtype, *, pooled: bool
) -> dict[str, Any]:
    """What an audit needs otherwise than it stands in a config."""
    found: dict[str, Any] = {}
    if dtype == torch.float64 and "_experts_implementation_internal" in values:
        found["_experts_implementation_internal"] = "eager"  # the fused one knows no float64
    if values.get("rescale_every") and not getattr(_owner(model), "layers_are_rescaled", True):
        found["rescale_every"] = 0  # RWKV would divide its weights in place, for half precision
    if pooled and values.get("pad_token_id", 0) is None:
        found["pad_token_id"] = -1  # nothing is padded: the last position is read
    return found


def _owner(model: nn.Module) -> nn.Module:
    """The module that remembers whether RWKV's layers are rescaled."""
    return next((m for m in model.modules() if hasattr(m, "layers_are_rescaled")), model)


def _configs(model: nn.Module) -> list[Any]:
    """The configs of a model and of its parts, each once."""
    found: dict[int, Any] = {}
    for module in model.modules():
        config = vars(module).get("config")
        if hasattr(config, "model_type"):
            found[id(config)] = config
    return list(found.values())


def _restore(now: dict[str, Any], before: dict[str, Any], *, skip: tuple[str, ...] = ()) -> None:
    if list(now) != list(before):
        for name in [name for name in now if name not in before]:
            del now[name]
    for name, value in before.items():
        if name not in skip and now.get(name, before) is not value:
            now[name] = value
