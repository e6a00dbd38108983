"""The nonlinearities that a student may have."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch.nn import functional

from memaudit.errors import ArgumentError, nearest

Activation = Callable[[torch.Tensor], torch.Tensor]

ACTIVATIONS: Mapping[str, Activation] = {
    "linear": lambda x: x,
    "tanh": torch.tanh,
    "hardtanh": functional.hardtanh,
    "relu": torch.relu,
}


def activation(name: str) -> Activation:
    """The function behind a name."""
    if name not in ACTIVATIONS:
        raise ArgumentError(f"unknown activation {name!r}", hint=nearest(name, ACTIVATIONS))
    return ACTIVATIONS[name]
