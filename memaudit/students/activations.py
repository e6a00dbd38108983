"""The nonlinearities that a student may have."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch.nn import functional

from memaudit.errors import ArgumentError, nearest

Activation = Callable[[torch.Tensor], torch.Tensor]


def linear(x: torch.Tensor) -> torch.Tensor:
    """The argument itself; a function with a name, so that students can be pickled."""
    return x


ACTIVATIONS: Mapping[str, Activation] = {
    "linear": linear,
    "tanh": torch.tanh,
    "hardtanh": functional.hardtanh,
    "relu": torch.relu,
}

#: The same, written over their argument.
IN_PLACE: Mapping[str, Activation] = {
    "linear": linear,
    "tanh": torch.tanh_,
    "hardtanh": lambda x: functional.hardtanh_(x),
    "relu": torch.relu_,
}


def activation(name: str) -> Activation:
    """The function behind a name."""
    if name not in ACTIVATIONS:
        raise ArgumentError(f"unknown activation {name!r}", hint=nearest(name, ACTIVATIONS))
    return ACTIVATIONS[name]


def slope(value: torch.Tensor, name: str) -> torch.Tensor:
    """The slope of an activation where it has a value, as a new tensor."""
    if name == "tanh":
        return 1.0 - value.square()
    if name == "hardtanh":
        return (value.abs() < 1.0).to(value.dtype)
    if name == "relu":
        return (value > 0.0).to(value.dtype)
    return torch.ones_like(value)
