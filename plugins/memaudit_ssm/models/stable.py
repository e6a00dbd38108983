"""The stack that StableSSM trains: encoder, residual blocks, decoder, as Lightning saves them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from memaudit_ssm.models.residual import ResidualStack

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from memaudit_ssm.layers.core import Core

ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda x: x,
    "tanh": torch.tanh,
    "hardtanh": functional.hardtanh,
    "softmax": lambda x: torch.softmax(x, dim=-1),
}


class Projection(nn.Module):
    """A linear layer named U, with an activation behind it."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool, activation: str) -> None:
        super().__init__()
        self.U = nn.Linear(inputs, outputs, bias=bias)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return ACTIVATIONS[self.activation](self.U(x))


class StableLayers(nn.Module):
    """The layers and their norms, under the names of StableSSM."""

    def __init__(self, layers: Sequence[Core], hidden: int) -> None:
        super().__init__()
        self.stablessm_layers = nn.ModuleList(layers)
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in layers)


class StableStack(ResidualStack):
    """StableSSMModel between its linear encoder and decoder."""

    listed: ClassVar[str] = "stablessm_layers"

    def __init__(
        self,
        layers: Sequence[Core],
        *,
        ends: tuple[Projection, Projection],
        hidden: int,
        prenorm: bool,
        pooled: bool,
        pooling: str = "mean",
    ) -> None:
        encoder, decoder = ends
        inputs = encoder.U.in_features
        super().__init__(inputs=inputs, prenorm=prenorm, pooled=pooled, pooling=pooling)
        self.encoder = encoder
        self.net = StableLayers(layers, hidden)
        self.decoder = decoder

    def stack(self) -> tuple[nn.ModuleList, nn.ModuleList]:
        return self.net.stablessm_layers, self.net.norms
