"""A model of timm in memory, ready to be listened to, with what the report says about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from memaudit.report import Identity

if TYPE_CHECKING:
    from torch import nn

    from memaudit.contracts import Request

#: More parameters than this are run in float32 unless asked otherwise.
LARGEST_DOUBLE = 2**25


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model of our own: in evaluation mode, without gradients, nobody else's module."""

    text: str
    model: nn.Module
    architecture: str
    sha256: str
    assumed: dict[str, str]
    notes: tuple[str, ...]

    @property
    def weight(self) -> torch.Tensor:
        """A parameter, which tells the dtype and the device of all."""
        return next(p for p in self.model.parameters() if p.is_floating_point())

    @property
    def parameters(self) -> int:
        """How many parameters the whole model has."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    def identity(self, family: str) -> Identity:
        """What is known before anybody has listened."""
        return Identity(
            source=self.text,
            adapter="timm",
            family=family,
            parameters=self.parameters,
            dtype=str(self.weight.dtype).removeprefix("torch."),
            device=str(self.weight.device),
            sha256=self.sha256,
            description=self.architecture,
            assumed=dict(self.assumed),
            notes=self.notes,
        )


def choose_dtype(request: Request, parameters: int) -> tuple[torch.dtype, tuple[str, ...]]:
    """The dtype to run in, and a sentence when it is not the finest."""
    if request.dtype is not None:
        return request.dtype, ()
    if request.device.type == "mps":
        return torch.float32, ()
    if parameters > LARGEST_DOUBLE:
        said = f"run in float32: it has {parameters:,} parameters; --dtype float64 shows more"
        return torch.float32, (said,)
    return torch.float64, ()
