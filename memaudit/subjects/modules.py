"""A torch module as a subject, and what any subject may be fed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from memaudit.errors import ArgumentError
from memaudit.interfaces import AbstractSubject
from memaudit.report import Identity


class ModuleSubject(AbstractSubject):
    """A module that answers sequences of its width; `module` holds the weights."""

    pooled = False

    def __init__(
        self,
        module: nn.Module,
        identity: Identity,
        *,
        width: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.module = module
        self.identity = identity
        self.input_size = width
        self.device = device
        self.dtype = dtype

    def respond(self, inputs: Tensor) -> Tensor:
        """Answer (B,T,D) floats, or (B,T) token ids, by (B,T,M), or by (B,M) when pooled."""
        with torch.no_grad():
            return self.run(self.module, inputs)

    def run(self, module: nn.Module, inputs: Any) -> Tensor:
        """What a copy of the module, with weights of its own, answers."""
        return module(checked_inputs(self, inputs))

    def weights(self) -> Mapping[str, Tensor]:
        """The parameters and buffers of the module."""
        return self.module.state_dict()

    def live_modules(self) -> Mapping[str, nn.Module]:
        """The module."""
        return {"": self.module}


def checked_inputs(subject: AbstractSubject, inputs: Any) -> Tensor:
    """Floats (B,T,D) in its dtype, or ids (B,T) in int64, on its device; or ArgumentError."""
    if not isinstance(inputs, Tensor):
        raise ArgumentError(f"the input must be a tensor, not {type(inputs).__name__}")
    if 0 in inputs.shape:
        raise ArgumentError(
            f"the input is empty: its shape is {tuple(inputs.shape)}; "
            "a sequence needs at least one step"
        )
    if inputs.is_complex() or inputs.dtype == torch.bool:
        raise ArgumentError(f"the input must hold floats or token ids, not {inputs.dtype}")
    if not inputs.is_floating_point():
        return _ids(subject, inputs).to(subject.device, torch.int64)
    if inputs.ndim != 3 or inputs.shape[2] != subject.input_size:
        raise ArgumentError(
            f"the model takes floats of shape (B, T, {subject.input_size}), "
            f"not {tuple(inputs.shape)}"
        )
    return inputs.to(subject.device, subject.dtype)


def _ids(subject: AbstractSubject, inputs: Tensor) -> Tensor:
    if subject.vocabulary is None:
        raise ArgumentError(
            "the model has no embedding that could take token ids",
            hint=f"feed floats of shape (B, T, {subject.input_size})",
        )
    if inputs.ndim != 2:
        raise ArgumentError(f"token ids have shape (B, T), not {tuple(inputs.shape)}")
    low, high = int(inputs.min()), int(inputs.max())
    if low < 0 or high >= subject.vocabulary:
        wrong = low if low < 0 else high
        raise ArgumentError(
            f"token id {wrong} is out of range: the embedding has {subject.vocabulary} rows"
        )
    return inputs
